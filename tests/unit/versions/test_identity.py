"""What each identity covers, and what it does not."""

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from golden_identities import assert_golden
from pydantic import Field

from larder.config.models.dataset import Cache, Dataset, Growth, Shards
from larder.config.models.field_types import Model
from larder.config.shape import (
    BuilderUse,
    DecoderUse,
    Feature,
    FormatOptions,
    ImageOptions,
    ImageShape,
    Transform,
)
from larder.manifest.digest import canonical_json
from larder.manifest.sealed import StoredFile
from larder.versions import identity
from larder.versions.documents import CacheFacts, CacheFile, SegmentDocument, Shape
from larder.versions.identity import (
    cache_id,
    content_digest,
    inputs_digest,
    segment_id,
    version_id,
    weaker_check,
)
from larder.versions.index import Shard
from larder.versions.omitted import Omitted

SHAPE = Shape("webdataset", 1, 150_000_000, {}, None)
SEGMENT: dict[str, Any] = {
    "dataset": "d",
    "samples": "5" * 64,
    "shape": SHAPE,
    "validate": "header",
    "on_bad_sample": "fail",
    "first_shards": {},
}
FILE = CacheFile("p", 1, "5" * 64, "6" * 64, 1, segment="a", split="train")


def shard(
    split: str = "train",
    name: str = "d-train-000000.tar",
    size_bytes: int = 10,
    sha256: str = "0" * 64,
    omitted: tuple[tuple[int, int], ...] = (),
) -> Shard:
    file = StoredFile(f"segments/a/shards/{split}/{name}", size_bytes, sha256, "shard")
    return Shard("a", split, 0, 9, 0, (file,), (), omitted)


def dataset(kind: type[Dataset] = Dataset, **fields: Any) -> Dataset:
    return kind.model_validate({"name": "d", "source": {"url": "/s"}, **fields})


def inputs(made: Dataset, label_files: dict[str, str] | None = None) -> str:
    return inputs_digest(made, "1" * 64, label_files or {})


def rows(*numbers: int) -> Omitted:
    mask = np.zeros(10, np.bool_)
    mask[list(numbers)] = True
    return Omitted.of_mask(mask)


def version(segments: Any = (("a", None), ("b", None)), omitted: Any = None, **fields: Any) -> str:
    given = {"classes": ("cat", "dog"), "split_names": ("train", "test"), **fields}
    return version_id("d", segments, omitted or {}, **given)


LABELLED = {"labels": {"from": "folder", "classes": ["cat", "dog"]}}
HASHED = {"splits": {"by": "hash", "seed": 1, "fractions": {"a": 0.5, "b": 0.5}}}
GLOBS = {"splits": {"a": "x/**", "b": "**"}}


@pytest.mark.parametrize(
    "fields",
    [
        {"description": "other", "mirror": False, "growth": {"removals": "omit"}},
        {"source": {"url": "s3://bucket/x", "region": "eu-west-1", "profile": "p"}},
        {"source": {"url": "s3://bucket/x", "endpoint": "http://127.0.0.1:9000"}},
        {"source": {"url": "/s", "include": ["a/**"], "exclude": ["b/**"]}},
        {"experiment": {"template": "x.yaml", "delivery": "bucket"}},
    ],
)
def test_fields_that_do_not_shape_samples_do_not_count(fields):
    assert inputs(dataset(**fields)) == inputs(dataset())


@pytest.mark.parametrize(
    ("fields", "base"),
    [
        ({"splits": {"train": "**"}}, {}),
        ({"splits": {"train": ["**"]}}, {}),
        ({"source": {"url": "/s", "archives": "keep", "rows": None}}, {}),
        (
            {"source": {"url": "/s", "rows": {"format": "auto", "key": None, "columns": {}}}},
            {"source": {"url": "/s", "rows": {}}},
        ),
        ({"shards": {"format": "webdataset", "bytes": "150 MB", "count_min": None}}, {}),
        ({"labels": {"from": "folder", "files": {}, "classes": None}}, {"labels": {}}),
        ({"labels": None, "cache": None, "validate": "header", "on_bad_key": "fail"}, {}),
        ({"on_bad_sample": "fail", "growth": {"mode": "append", "removals": "repack"}}, {}),
        (
            {"splits": {**HASHED["splits"], "fractions": {"a": 1}, "group": None}},
            {"splits": {**HASHED["splits"], "fractions": {"a": 1.0}}},
        ),
    ],
)
def test_defaults_that_are_written_out_change_nothing(fields, base):
    assert inputs(dataset(**fields)) == inputs(dataset(**base))


DIFFERENT: list[dict[str, Any]] = [
    {},
    {"shards": {"samples_per_shard": 256}},
    *({"shards": {"shuffle_seed": seed}} for seed in (0, 1)),
    *({"shards": {name: 1}} for name in ("count_min", "bytes")),
    {"shards": {"format": "tfrecord"}},
    *({name: "skip"} for name in ("on_bad_key", "on_bad_sample")),
    {"validate": "none"},
    {"labels": {"classes": []}},
    {"labels": {}},
    *({"splits": {"a": globs}} for globs in (["a,b"], ["a", "b"], ["b", "a"])),
    *({"splits": dict(each)} for each in ((("a", "*"), ("b", "a")), (("b", "a"), ("a", "*")))),
    {"validate": "decode", "decoding": {"wav": "wav"}},
    {"validate": "decode", "decoding": {"mel": "npy shape=80,*"}},
    GLOBS,
    HASHED,
    {"splits": {**HASHED["splits"], "fractions": {"a": 0.6, "b": 0.4}}},
    LABELLED,
    {"source": {"url": "/s", "archives": "expand"}},
    {"source": {"url": "/s", "archives": "expand", "include": ["a/**"]}},
    {"source": {"url": "/s", "archives": "expand", "exclude": ["a/**"]}},
    {"source": {"url": "/s", "rows": {}}},
    {"source": {"url": "/s", "rows": {"key": "id"}}},
    {"source": {"url": "/s", "rows": {"columns": {"a": "jpg"}}}},
    {"source": {"url": "/s", "rows": {"columns": {"a": None}}}},
    {"source": {"url": "/s", "rows": {}, "archives": "expand"}},
    {"validate": "decode", "cache": {"records": "encoded"}},
    {"validate": "decode", "cache": {"records": "decoded"}},
]


def test_fields_that_shape_samples_lead_to_other_inputs():
    assert len({inputs(dataset(**fields)) for fields in DIFFERENT}) == len(DIFFERENT)
    files = [{}, {"a": "0"}, {"b": "0"}, {"a": "1"}, {"a": "0", "b": "0"}]
    assert len({inputs(dataset(), each) for each in files}) == len(files)


class _Shards(Shards):
    compression: str = "none"


class _Retention(Model):
    days: int = 30


class _Later(Dataset):
    """The dataset file of a later release, with options that have defaults."""

    shards: _Shards = Field(_Shards(), description="")
    retention: _Retention = Field(_Retention(), description="")
    growth: Growth = Field(Growth(mode="rebuild"), description="")
    cache: Cache | None = Field(None, description="")


@pytest.mark.parametrize("fields", DIFFERENT)
def test_a_new_option_with_a_default_changes_nothing(fields):
    assert inputs(dataset(_Later, **fields)) == inputs(dataset(**fields))


def segment(**fields: Any) -> dict[str, Any]:
    return {**SEGMENT, **fields}


def shaped(**fields: Any) -> dict[str, Any]:
    return segment(shape=replace(SHAPE, **fields))


LABEL = Feature("label", "int64")
TEXT = Feature("part", "bytes", part="txt")
SEGMENTS = [
    SEGMENT,
    segment(dataset="e"),
    segment(samples="6" * 64),
    segment(validate="decode"),
    segment(on_bad_sample="skip"),
    *(segment(first_shards=first) for first in ({"a": 1}, {"a": 2}, {"b": 1})),
    *(shaped(format=name) for name in ("columns", "")),
    *(shaped(format_version=2, bytes=size) for size in (0, 1, 150_000_000)),
    *(shaped(split_bytes=sizes) for sizes in ({"a": 1}, {"a": 2}, {"b": 1})),
    *(shaped(shuffle_seed=seed) for seed in (0, 1)),
    *(shaped(samples_per_shard=number) for number in (256, 257)),
    *(shaped(library=f"pyarrow {release}") for release in ("26.0.1", "27.0.0")),
    *(shaped(options=FormatOptions(features=each)) for each in ({}, {"a": LABEL}, {"a": TEXT})),
    *(shaped(options=FormatOptions(classes=names)) for names in (("ab",), ("a", "b"), ("b", "a"))),
    shaped(options=FormatOptions(first_record=1)),
]
CACHES: list[tuple[Any, ...]] = [
    *(("a", kind) for kind in ("encoded", "decoded", "built")),
    ("b", "encoded"),
    *(("a", "decoded", (DecoderUse("npy", "npy", **more),)) for more in ({}, {"version": "2"})),
    ("a", "decoded", (DecoderUse("npy", "npy", parameters='{"a":1}'),)),
    *(("a", "decoded", (DecoderUse("npy", "npy", shape=shape),)) for shape in ((), (None,), (1,))),
    ("a", "decoded", (DecoderUse("npy", "npy"), DecoderUse("wav", "wav"))),
    *(("a", "built", (), BuilderUse("m:f", given, digest)) for given in "ab" for digest in "01"),
    *(
        ("a", "decoded", (), None, ImageShape(*sides))
        for sides in ((1, 2, 3), (2, 1, 3), (1, 2, 1))
    ),
]
VERSIONS: list[dict[str, Any]] = [
    {},
    {"segments": (("b", None), ("a", None))},
    {"segments": (("a", None),)},
    {"segments": (("a", "c"), ("b", "d"))},
    {"segments": (("a", "d"), ("b", "c"))},
    *({"omitted": {place: rows(1)}} for place in (("a", "train"), ("a", "test"), ("b", "train"))),
    {"omitted": {("a", "train"): rows(1, 2)}},
    *({"classes": names} for names in (("dog", "cat"), ("cat,dog",), ())),
    {"split_names": ("train",)},
    *({"skipped": digest} for digest in ("", "1")),
]
CONTENTS: list[tuple[Any, ...]] = [
    *(([shard(**more)], [], None) for more in ({}, {"split": "a"}, {"name": "b"})),
    *(([shard(**more)], [], None) for more in ({"size_bytes": 1}, {"sha256": "1" * 64})),
    *(([shard(omitted=each)], [], None) for each in (((0, 1),), ((0, 2),))),
    ([], ["a"], None),
    ([], ["a", "b"], None),
    ([shard("classes", "a", 0, "")], [], None),
    *(([], [], CacheFacts(kind, {"train": (FILE,)})) for kind in ("encoded", "decoded")),
    ([], [], CacheFacts("encoded", {"test": (FILE,)})),
    ([], [], CacheFacts("encoded", {"train": (replace(FILE, digest="7" * 64),)})),
]


def test_everything_else_counts():
    for ids, given in (
        ([segment_id(**each) for each in SEGMENTS], SEGMENTS),
        ([cache_id(*each) for each in CACHES], CACHES),
        ([cache_id("a", "encoded", version=number) for number in (1, 2)], [1, 2]),
        ([version(**each) for each in VERSIONS], VERSIONS),
        ([content_digest(*each) for each in CONTENTS], CONTENTS),
    ):
        same = [given[number] for number, found in enumerate(ids) if ids.count(found) > 1]
        assert not same
    assert len(segment_id(**SEGMENT)) == 32


def test_the_order_of_splits_and_a_first_shard_of_0_do_not_count_in_a_segment():
    assert segment_id(**segment(first_shards={"train": 0})) == segment_id(**SEGMENT)
    for one, other in (
        (shaped(split_bytes={"a": 1, "b": 2}), shaped(split_bytes={"b": 2, "a": 1})),
        (segment(first_shards={"a": 1, "b": 2, "c": 0}), segment(first_shards={"b": 2, "a": 1})),
    ):
        assert segment_id(**one) == segment_id(**other)


def test_orders_without_a_meaning_do_not_count_in_a_version():
    assert version(split_names=("test", "train")) == version()
    omitted = {("a", "train"): rows(1), ("b", "train"): rows(2)}
    assert version(omitted=dict(reversed(omitted.items()))) == version(omitted=omitted)
    assert version(omitted={("a", "train"): Omitted.none()}) == version()


def test_where_it_is_and_what_depends_on_the_machine_is_not_in_the_content_digest():
    cache = CacheFacts("encoded", {"train": (FILE,)})
    other = replace(FILE, path="q", bytes=2, sha256="9" * 64, segment="b")
    digest = content_digest([shard()], [], cache)
    assert content_digest([shard()], [], CacheFacts("encoded", {"train": (other,)})) == digest


def test_the_omitted_rows_of_a_shard_count_once():
    one, other = shard("a", "x", omitted=((0, 2),)), shard("a", "y")
    digest = hashlib.sha256(b"larder-content-1\n")
    for row in ["a", "x", 10, "0" * 64, [[0, 2]]], ["a", "y", 10, "0" * 64], ["classes", []]:
        digest.update(canonical_json(row) + b"\n")
    both = one._replace(files=one.files + other.files)
    assert content_digest([both], [], None) == digest.hexdigest()


@pytest.mark.parametrize(("fields", "is_new"), [({}, False), ({"cache": {}}, True)], ids=str)
def test_a_release_with_another_format_of_caches_makes_new_ones(monkeypatch, fields, is_new):
    """It cannot read those of before."""
    before = inputs(dataset(**fields))
    monkeypatch.setattr(identity, "CACHE_VERSION", identity.CACHE_VERSION + 1)
    assert (inputs(dataset(**fields)) != before) == is_new


# Pinned: an identity that changes without need makes everybody pack everything again

PINNED: dict[str, dict[str, Any]] = {
    "least": {},
    "all": {
        "splits": {"train": ["train/**", "more/**"], "test": "**"},
        "labels": {"files": {"test": "val.txt"}, "classes": ["cat", "ü"]},
        "shards": {"format": "columns", "bytes": "1 MB", "count_min": 3, "shuffle_seed": 0},
        "validate": "decode",
        "on_bad_key": "skip",
        "on_bad_sample": "skip",
        "cache": {"records": "decoded"},
    },
    "images": {"images": {"max_pixels": 1_000}},
    "cache images": {
        "validate": "decode",
        "cache": {"records": "decoded", "images": {"resize": [224, 200], "mode": "L"}},
    },
    "transform": {"shards": {"images": {"resize": 256, "format": "jpeg", "masks": ["seg"]}}},
    "masks": {
        "shards": {"images": {"masks": ["seg"]}},
        "validate": "decode",
        "cache": {"records": "decoded"},
    },
    "decoding": {
        "validate": "decode",
        "decoding": {"wav": "wav", "mel": "npy shape=80,*"},
        "cache": {"records": "decoded"},
    },
    "hashed": {
        "splits": {
            "by": "hash",
            "seed": -7,
            "fractions": {"train": 0.9, "validation": 0.1},
            "group": "patient-([0-9]+)",
        },
        "labels": {"from": "folder"},
        "cache": {"records": "encoded"},
    },
    "expanded": {
        "source": {
            "url": "/s",
            "include": ["a/**"],
            "exclude": ["**/*.txt"],
            "archives": "expand",
            "rows": {
                "format": "parquet",
                "key": "id",
                "columns": {"image.bytes": "jpg", "x": None},
            },
        },
    },
}


def test_inputs_are_pinned():
    label_files = {"all": {"test": "3" * 64}}
    found = {
        name: inputs(dataset(**fields), label_files.get(name)) for name, fields in PINNED.items()
    }
    assert_golden("inputs", found)


OPTIONS = FormatOptions(
    {"image/encoded": Feature("image", "bytes"), "weight": Feature("part", "float", "weight.txt")},
    ("cat", "ü"),
    1_000,
)

TRANSFORM = ImageOptions(
    transform=Transform(
        resize=256, format="jpeg", masks=("seg",), codecs={"pillow": "13.0.0", "jpeg": "x 1"}
    )
)

DECODERS = (
    DecoderUse("mel", "npy", shape=(80, None), version="1"),
    DecoderUse("wav", "m:f", '{"rate":16000}', version="2"),
)


def test_segments_and_their_caches_are_pinned():
    least = segment(samples="2" * 64)
    shapes = {
        "images": {"images": ImageOptions(1_000)},
        "transform": {"images": TRANSFORM},
        "options": {"format": "tfrecord", "options": OPTIONS},
    }
    decoding = replace(SHAPE, images=ImageOptions(decoders=DECODERS))
    identities = {
        "least": least,
        "grown": segment(samples="2" * 64, first_shards={"train": 12, "validation": 0}),
        "all": segment(
            samples="2" * 64,
            validate="decode",
            on_bad_sample="skip",
            first_shards={"train": 12, "test": 1},
            shape=Shape("columns", 2, 1_000_000, {"train": 400_000, "test": 7}, 0),
        ),
        "decoding": segment(samples="2" * 64, validate="decode", shape=decoding),
        **{
            name: segment(samples="2" * 64, shape=replace(SHAPE, **each))
            for name, each in shapes.items()
        },
    }
    segments = {name: segment_id(**each) for name, each in identities.items()}
    assert_golden("segments", segments)
    caches = {kind: cache_id(segments["least"], kind) for kind in ("encoded", "decoded")}
    caches["decoders"] = cache_id(segments["least"], "decoded", DECODERS)
    builder = BuilderUse("m:f", '{"rate":16000}', "0" * 64)
    caches["builder"] = cache_id(segments["least"], "built", builder=builder)
    caches["images"] = cache_id(segments["least"], "decoded", images=ImageShape(224, 200, 3))
    assert_golden("caches", caches)


def test_versions_and_contents_are_pinned():
    one, other = "a" * 32, "b" * 32
    whole = version_id(
        "d",
        [(one, "c" * 32), (other, "d" * 32)],
        {(one, "train"): rows(0, 1, 5), (other, "test"): rows(3)},
        classes=("cat", "ü"),
        split_names=("train", "test"),
        skipped="9" * 64,
    )
    least = version_id("d", [(one, None)], {}, classes=(), split_names=("train",))
    assert_golden("versions", {"least": least, "all": whole})
    shards = [
        shard("train", "d-train-000001.tar", 20_480, "1" * 64, ((0, 2), (5, 6))),
        shard("train", "d-train-000000.tar", 10_240),
        shard("test", "d-test-000000.tar", 10_240, "2" * 64),
    ]
    files = [
        CacheFile("p", 1, "0" * 64, digest * 64, 9, segment=segment, split="train")
        for segment, digest in ("a3", "b4")
    ]
    cache = CacheFacts("decoded", {"train": tuple(files)})
    contents = {
        "least": content_digest(shards[1:2], [], None),
        "all": content_digest(shards, ["cat", "ü"], cache),
    }
    assert_golden("contents", contents)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"validate": "header"}, ""),
        ({"validate": "decode"}, "validate was header"),
        ({"validate": "none"}, ""),
        ({"images": {"max_pixels": 9}}, "images.max_pixels was 1,000"),
        ({"images": {"max_pixels": 9}, "validate": "none"}, ""),
        ({"images": {"max_pixels": 2_000}}, ""),
    ],
)
def test_samples_are_checked_again_only_if_the_check_is_stricter(fields, reason):
    shape = Shape("webdataset", 1, 1_000, {}, None, images=ImageOptions(max_pixels=1_000))
    segment = SegmentDocument("d", "0" * 32, shape, "header", {}, ())
    named = {"name": "d", "source": {"url": "/s"}, "images": {"max_pixels": 1_000}}
    assert weaker_check(Dataset.model_validate(named | fields), segment) == reason
