"""What each identity covers, and what it does not.

That all the rest of a segment, a cache, a version and its content counts is a property:
tests/property/test_property_identity.py.
"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pydantic import Field

from larder.config.models.dataset import Cache, Dataset, Growth, Shards
from larder.config.models.field_types import Model
from larder.versions import identity
from larder.versions.documents import CacheFacts, CacheFile, Shape
from larder.versions.identity import (
    SegmentIdentity,
    ShardIdentity,
    content_digest,
    inputs_digest,
    segment_id,
    version_id,
)
from larder.versions.omitted import Omitted

SHAPE = Shape("webdataset", 1, 150_000_000, {}, None)
SEGMENT = SegmentIdentity("d", "5" * 64, SHAPE, "header", "fail", {})
SHARD = ShardIdentity("train", "d-train-000000.tar", 10, "0" * 64)
FILE = CacheFile("p", 1, "5" * 64, "6" * 64, 1, segment="a", split="train")


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


def shaped(**fields: Any) -> SegmentIdentity:
    return SEGMENT._replace(shape=replace(SHAPE, **fields))


def test_what_seldom_shapes_a_segment_is_in_its_id_too():
    segments = [
        SEGMENT,
        SEGMENT._replace(validate="decode"),
        shaped(samples_per_shard=256),
        shaped(samples_per_shard=257),
        shaped(packing=2),
    ]
    assert len({segment_id(identity) for identity in segments}) == len(segments)
    assert len(segment_id(SEGMENT)) == 32


def test_the_order_of_splits_and_a_first_shard_of_0_do_not_count_in_a_segment():
    assert segment_id(SEGMENT._replace(first_shards={"train": 0})) == segment_id(SEGMENT)
    for one, other in (
        (shaped(split_bytes={"a": 1, "b": 2}), shaped(split_bytes={"b": 2, "a": 1})),
        (
            SEGMENT._replace(first_shards={"a": 1, "b": 2, "c": 0}),
            SEGMENT._replace(first_shards={"b": 2, "a": 1}),
        ),
    ):
        assert segment_id(one) == segment_id(other)


def test_orders_without_a_meaning_do_not_count_in_a_version():
    assert version(split_names=("test", "train")) == version()
    omitted = {("a", "train"): rows(1), ("b", "train"): rows(2)}
    assert version(omitted=dict(reversed(omitted.items()))) == version(omitted=omitted)
    assert version(omitted={("a", "train"): Omitted.none()}) == version()


def test_where_it_is_and_what_depends_on_the_machine_is_not_in_the_content_digest():
    cache = CacheFacts("encoded", {"train": (FILE,)})
    other = replace(FILE, path="q", bytes=2, sha256="9" * 64, segment="b")
    digest = content_digest([SHARD], [], cache)
    assert content_digest([SHARD], [], CacheFacts("encoded", {"train": (other,)})) == digest


@pytest.mark.parametrize(("fields", "is_new"), [({}, False), ({"cache": {}}, True)], ids=str)
def test_a_release_with_another_format_of_caches_makes_new_ones(monkeypatch, fields, is_new):
    """It cannot read those of before."""
    before = inputs(dataset(**fields))
    monkeypatch.setattr(identity, "CACHE_VERSION", identity.CACHE_VERSION + 1)
    assert (inputs(dataset(**fields)) != before) == is_new
