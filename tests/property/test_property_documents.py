"""Documents come back unchanged; whatever else is in them is one line of damage, or harmless."""

import json
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.config.shape import Feature, FormatOptions
from larder.errors import DamageError
from larder.manifest.sealed import StoredFile, seal
from larder.versions.documents import (
    CacheDocument,
    CacheFacts,
    CacheFile,
    OmittedRows,
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    Shape,
    SplitFacts,
    VersionDocument,
    parse_document,
)

S, T, C, V = ("0123456789abcde" + digit + 16 * digit for digit in "acef")
FILE = CacheFile(f"segments/{S}/caches/{C}/p", 1, "5" * 64, "6" * 64, 1, segment=S, split="train")
SHARDS = f"segments/{S}/shards/train"
DOCUMENTS: list[Any] = [
    SegmentDocument(
        dataset="d",
        id=S,
        shape=Shape("webdataset", 1, 10, {"train": 5}, -7),
        validate="header",
        splits={"train": SegmentSplit(1, 1, 10, 0, 2, 3)},
        files=(StoredFile(f"segments/{S}/a", 1, "0" * 64, "samples"),),
        skipped=1,
    ),
    SegmentDocument(
        dataset="d",
        id=T,
        shape=Shape(
            "other",
            1,
            10,
            {},
            None,
            FormatOptions({"train": Feature("part", "float", "x.txt")}, ("a", "ü"), 7),
        ),
        validate="header",
        splits={"train": SegmentSplit(0, 0, 0, 0, 0, 0)},
        files=(),
    ),
    CacheDocument("d", S, C, "encoded", {"train": FILE}),
    VersionDocument(
        dataset="d",
        id=V,
        digest="1" * 64,
        inputs="2" * 64,
        segments=(
            SegmentUse(S, {"train": OmittedRows(3, ((0, 1), (4, 6)))}, C),
            SegmentUse(T, {"train": OmittedRows(9, (), 0, 9)}),
        ),
        splits={"train": SplitFacts(4, 3, 10, (f"{SHARDS}/p-{{0..1}}", f"{SHARDS}/p-3"))},
        classes=("a", "ü"),
        files=(StoredFile(f"versions/{V}/a", 1, "0" * 64, "samples"),),
        cache=CacheFacts("encoded", {"train": (FILE, FILE)}),
    ),
]

OPTIONAL = {
    field.name
    for kind in (
        VersionDocument,
        SegmentDocument,
        SegmentUse,
        SplitFacts,
        CacheFile,
        OmittedRows,
        Shape,
        FormatOptions,
        Feature,
    )
    for field in fields(kind)
    if field.default is not MISSING or field.default_factory is not MISSING
} | {"format"}

ALLOWED = {
    *(("shuffle_seed", repr(value)) for value in (None, -1, 2**63)),
    *(("cache", repr(value)) for value in (None, "a")),
    ("split_bytes", repr({"a": 0})),
    ("features", "None"),
}

values = st.recursive(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 0, 1, 2**63, 10**30, 0.5, "", "a", "\n", "train"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.just("a"), inner, max_size=1),
    max_leaves=4,
)


def sealed(plain: Any) -> bytes:
    return seal({name: value for name, value in plain.items() if name != "self_sha256"})


def paths(plain: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a document but for its digest."""
    items: list[Any] = []
    if isinstance(plain, dict):
        items = [(name, value) for name, value in plain.items() if name != "self_sha256"]
    elif isinstance(plain, list):
        items = list(enumerate(plain))
    found = [path] if path else []
    return found + [each for name, value in items for each in paths(value, (*path, name))]


def inside(plain: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        plain = plain[part]
    return plain


def refused(kind: type[Any], data: bytes) -> bool:
    try:
        parse_document(kind, data, "x")
    except DamageError as error:
        return error.code in ("damage.manifest", "damage.digest") and "\n" not in str(error)
    return False


@pytest.mark.parametrize("document", DOCUMENTS)
def test_documents_come_back(document):
    assert parse_document(type(document), seal(document), "x") == document


def test_options_at_their_default_are_left_out():
    assert "options" not in json.loads(seal(DOCUMENTS[0]))["shape"]
    assert json.loads(seal(DOCUMENTS[1]))["shape"]["options"] == {
        "features": {"train": {"source": "part", "kind": "float", "part": "x.txt"}},
        "classes": ["a", "ü"],
        "first_record": 7,
    }


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_field_of_another_type_is_refused(document):
    plain = json.loads(seal(document))
    for path in paths(plain):
        for other in (None, True, -1, 0.5, "a", [], [[]], {"a": {}}, {"a": 0}, 2**63):
            changed = json.loads(seal(document))
            there = inside(plain, path)
            if type(other) is type(there) and (isinstance(there, str) or other == []):
                continue
            if (path[-1], repr(other)) in ALLOWED:
                continue
            inside(changed, path[:-1])[path[-1]] = other
            assert refused(type(document), sealed(changed)), (path, other)


ELSEWHERE = (
    *("", ".", "..", "/x", "../x", "a/../../x", "x/..", "x\\..\\y", "x\0", "x\n", "é", " x", "~"),
    *("x.tar::pipe:touch x", "$(touch x)", "`x`", "{0..99999999}", "{a,b}", "a b", "A" * 300),
)
FREE = {"classes", "fields", "features", "validate", "split_rule", "format", "self_sha256"}
"""Texts that become no part of a path, a config or a command."""


@pytest.mark.parametrize("document", DOCUMENTS)
def test_texts_that_lead_elsewhere_are_refused(document):
    """In the place of every text, below it, and in the place of the name of every split."""
    plain = json.loads(seal(document))
    for path in paths(plain):
        value, last = inside(plain, path), path[-1]
        for text in () if FREE & set(path) else ELSEWHERE:
            for other in (text, f"{value}/{text}") if isinstance(value, str) else ():
                changed = json.loads(seal(document))
                inside(changed, path[:-1])[last] = other
                assert refused(type(document), sealed(changed)), (path, other)
            if last == "train":
                changed = json.loads(seal(document))
                of_split = inside(changed, path[:-1])
                of_split[text] = of_split.pop(last)
                assert refused(type(document), sealed(changed)), (path, text)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_unknown_and_missing_fields_are_refused(document):
    plain = json.loads(seal(document))
    for path in [(), *paths(plain)]:
        if not isinstance(inside(plain, path), dict):
            continue
        changed = json.loads(seal(document))
        inside(changed, path)["other"] = "" if path[-1:] == ("split_bytes",) else 1
        assert refused(type(document), sealed(changed)), path
        for name in inside(plain, path).keys() - OPTIONAL - {"self_sha256", "train"}:
            changed = json.loads(seal(document))
            del inside(changed, path)[name]
            assert refused(type(document), sealed(changed)), (*path, name)


@given(st.sampled_from(DOCUMENTS), st.lists(st.tuples(st.randoms(), values), min_size=1))
def test_no_change_of_a_document_is_more_than_damage(document, changes):
    plain = json.loads(seal(document))
    for random, value in changes:
        known = paths(plain)
        if not known:
            break
        path = random.choice(known)
        inside(plain, path[:-1])[path[-1]] = value
    refused(type(document), sealed(plain))


@example(b'{"a":NaN,"self_sha256":""}')
@example(b'{"a":"\\ud800","self_sha256":""}')
@example(b"[" * 100_000)
@example(b'{"self_sha256":{}}')
@example(b"[]")
@example(b"1" * 5_000)
@given(st.binary(max_size=60))
def test_any_other_bytes_are_damage(data):
    assert all(refused(type(document), data) for document in DOCUMENTS)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_document_of_another_kind_is_refused(document):
    for other in DOCUMENTS:
        assert refused(type(other), seal(document)) == (type(other) is not type(document))


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        (DOCUMENTS[0], {"validate": ""}),
        (DOCUMENTS[0], {"splits": {}}),
        (DOCUMENTS[-1], {"splits": {}}),
        (DOCUMENTS[-1], {"splits": {"test": SplitFacts(0, 0, 0, ())}}),
    ],
)
def test_what_no_run_would_publish_is_damage(document, fields):
    assert refused(type(document), seal(replace(document, **fields)))
