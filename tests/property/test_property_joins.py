"""Samples joined by patterns, and entries of annotations, compared with plain Python models."""

import re
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_names import split_key

from larder.errors import ConfigError
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.matching import ENTRIES, Matching
from larder.samples.naming import bad_key_reason
from larder.samples.parts import named_objects
from larder.samples.sample_order import SampleOrder
from tests.support.listings import object_batches, ordered

JOIN = {
    "image": "images/{id}.jpg",
    "mask": "masks/{id}_mask.png",
    "caption": "text/{id}.*",
    "frame": "cam?/frames/{id}/*.jpg",
}
MODEL = [
    ("image", re.compile(r"images/(?P<id>.+)\.(?P<ext>jpg)"), ()),
    ("mask", re.compile(r"masks/(?P<id>.+)_mask\.(?P<ext>png)"), ()),
    ("caption", re.compile(r"text/(?P<id>(?:[^.]|\.(?=[^/]*/))+)\.(?P<ext>[^/]*)"), ()),
    (
        "frame",
        re.compile(r"cam(?P<cam>[^/])/frames/(?P<id>.+)/(?P<number>[^/.]*)\.(?P<ext>jpg)"),
        ("cam", "number"),
    ),
]


def modelled(key: str) -> tuple[str, str, int] | None:
    """The sample, the extension and the pattern of an object; None if it is none."""
    for number, (name, pattern, wildcards) in enumerate(MODEL):
        found = pattern.fullmatch(key)
        if found and "." not in found["id"].rpartition("/")[2]:
            middle = [found[group] for group in wildcards if found[group]]
            ext = ".".join([name, *middle, found["ext"]]).lower()
            bad = not found["ext"] or "" in found["id"].split("/")
            return None if bad else (found["id"], ext.replace("jpeg", "jpg"), number)
    return None


def order(folder: Path, keys: set[str], cut: int, **fields: Any) -> tuple[SampleOrder, list[Any]]:
    found = ordered(folder, object_batches(keys, cut), **fields)
    samples = [
        (row["key"], {part["ext"]: part["key"] for part in row["parts"]})
        for batch in read_manifest(found.file.path, SAMPLE_ORDER, rows=found.samples)
        for row in batch.to_pylist()
    ]
    return found, samples


IDS = st.sampled_from(["a", "b", "c", "d/a", "d/b", "v1.2/a", "ü", "e.x"])
KEYS = st.one_of(
    st.builds("images/{}.jpg".format, IDS),
    st.builds("masks/{}_mask.png".format, IDS),
    st.builds("text/{}.{}".format, IDS, st.sampled_from(["txt", "TXT", "json", ""])),
    st.builds("cam{}/frames/{}/{}.jpg".format, st.sampled_from("12"), IDS, st.sampled_from("xy")),
    st.sampled_from(["readme.md", "images/x.png", "masks/a.png", "images/.jpg"]),
)


@settings(max_examples=2 * settings.default.max_examples)
@given(
    keys=st.sets(KEYS, min_size=1, max_size=40),
    missing=st.sampled_from(["refuse", "skip", "keep"]),
    cut=st.integers(1, 20),
)
def test_joins_are_those_of_a_plain_model(keys, missing, cut):
    parts: dict[str, dict[str, str]] = defaultdict(dict)
    patterns: dict[str, set[int]] = defaultdict(set)
    bad = set()
    for key in sorted(keys, key=str.encode):
        found = modelled(key)
        if found is None or found[1] in parts[found[0]]:
            bad.add(key)
        else:
            sample, ext, number = found
            parts[sample][ext] = key
            patterns[sample].add(number)
    incomplete = {key for key, found in patterns.items() if len(found) < len(JOIN)}
    left_out = set() if missing == "keep" else incomplete
    expected = [
        (key, dict(sorted(parts[key].items())))
        for key in sorted(patterns, key=str.encode)
        if key not in left_out
    ]
    samples = {"join": JOIN, "missing": missing}
    with tempfile.TemporaryDirectory() as folder:
        order_, found_samples = order(Path(folder), keys, cut, samples=samples)
    assert found_samples == expected
    assert {failure.key for failure in order_.bad_keys.shown} == bad
    assert order_.bad_keys.count == len(bad)
    assert {failure.key for failure in order_.incomplete.shown} == left_out
    assert order_.incomplete.count == len(left_out)
    assert {failure.code for failure in order_.incomplete.shown} <= {"config.missing_part"}


@settings(deadline=None)
@given(keys=st.sets(KEYS, min_size=1, max_size=20))
def test_one_pattern_without_a_name_is_the_rule_of_webdataset(keys):
    """As far as keys are good."""
    with tempfile.TemporaryDirectory() as folder:
        one, expected = order(Path(folder), keys, 7)
        other, found = order(Path(folder), keys, 7, samples={"join": ["{id}.*"]})
    assert found == expected
    assert {each.key for each in one.bad_keys.shown} == {each.key for each in other.bad_keys.shown}
    assert one.digest == other.digest


FOLDERS = st.sampled_from(["", "a/", "b/", "a/b/", "b/a/", "ü/"])
STEMS = st.sampled_from(["1", "2", "x", "a"])
OBJECTS = st.builds("{}{}.{}".format, FOLDERS, STEMS, st.sampled_from(["jpg", "txt", "seg.png"]))
NAMES = st.one_of(OBJECTS, st.builds("{}{}".format, FOLDERS, STEMS), st.just("no/such.jpg"))


def samples_of(name: str, keys: list[str]) -> set[str]:
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for key in keys:
        sample = split_key(key).sample_key
        called = key if "." in name.rpartition("/")[2] else sample
        if called == name or called.endswith(f"/{name}"):
            found[called == name].add(sample)
    return found[True] or found[False]


def entry_batches(names: list[str], cut: int) -> Iterator[pa.RecordBatch]:
    rows = [
        {"name": name, "ext": "json", "key": f"t/{name}/json", "size_bytes": 1, "etag": f"@{at}"}
        for at, name in enumerate(names)
    ]
    for start in range(0, len(rows), cut):
        yield pa.RecordBatch.from_pylist(rows[start : start + cut], schema=ENTRIES)


@pytest.mark.push
@settings(max_examples=2 * settings.default.max_examples)
@given(
    keys=st.sets(OBJECTS, max_size=15),
    names=st.lists(NAMES, max_size=10, unique=True),
    cut=st.integers(1, 8),
)
def test_matches_are_those_of_a_plain_model(keys, names, cut):
    assert not any(map(bad_key_reason, keys))
    ordered = sorted(keys, key=str.encode)
    batches = (
        pa.record_batch({"key": pa.array(ordered[at : at + cut], pa.string())})
        for at in range(0, len(ordered), cut)
    )
    expected = {name: samples_of(name, ordered) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        matching = Matching(
            lambda: entry_batches(names, cut), named_objects(batches, [], None), Path(folder)
        )
        if any(len(samples) > 1 for samples in expected.values()):
            with pytest.raises(ConfigError, match="fits several samples") as caught:
                list(matching.rows())
            assert len(expected[caught.value.where]) > 1
            return
        found = [row for batch in matching.rows() for row in batch.to_pylist()]
        assert not list(Path(folder).iterdir())
    fitting = {f"t/{name}/json": samples.pop() for name, samples in expected.items() if samples}
    assert {row["key"]: row["sample"] for row in found} == fitting
    assert len(found) == len(fitting)
    assert all(split_key(row["object"]).sample_key == row["sample"] for row in found)
    assert matching.unfit.count == len(names) - len(fitting)
    assert len(matching.unfit.shown) == matching.unfit.count
