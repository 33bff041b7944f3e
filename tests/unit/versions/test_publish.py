"""Identity and the last writes."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from functools import partial

import pytest

from larder.config.models import Dataset
from larder.errors import DamageError
from larder.store import open_store
from larder.store.base import Store
from larder.versions import identity, layout
from larder.versions.documents import (
    CacheFacts,
    CacheFile,
    SegmentUse,
    SplitFacts,
    VersionDocument,
    parse_document,
    seal,
)
from larder.versions.identity import content_digest, version_id
from larder.versions.publish import publish_version, read_version

inputs_digest = partial(identity.inputs_digest, shards_version=1)
segment_id = partial(identity.segment_id, shards_version=1)

VERSION = VersionDocument(
    dataset="d",
    id="1" * 32,
    digest="2" * 64,
    inputs="3" * 64,
    segments=(SegmentUse("4" * 32),),
    splits={"train": SplitFacts(1, 1, 2048, ("segments/x/shards/train/d-train-000000.tar",))},
    classes=("a", "ü"),
    files=(),
    cache=CacheFacts("encoded", {"train": (CacheFile("p", 1, "5" * 64, "6" * 64, 1),)}),
)


@pytest.fixture
def root() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/")


def dataset(**fields: object) -> Dataset:
    return Dataset.model_validate({"name": "d", "source": {"url": "/s"}, **fields})


def test_a_version_is_read_back_unchanged(root: Store) -> None:
    assert publish_version(root, VERSION) == VERSION
    assert read_version(root, VERSION.id) == VERSION
    assert read_version(root, "0" * 32) is None


def test_the_first_to_publish_wins(root: Store) -> None:
    publish_version(root, VERSION)
    assert publish_version(root, replace(VERSION, inputs="9" * 64)) == VERSION


def test_a_document_with_any_byte_changed_is_found(root: Store) -> None:
    data = seal(VERSION)
    for position in range(0, len(data) - 1, 7):
        damaged = bytearray(data)
        damaged[position] ^= 1
        with pytest.raises(DamageError):
            parse_document(VersionDocument, bytes(damaged), "x")


def test_a_newer_format_is_named() -> None:
    data = seal(replace(VERSION, format="larder-version-9"))
    with pytest.raises(DamageError, match="larder-version-9"):
        parse_document(VersionDocument, data, "x")


def test_documents_have_no_times_and_no_absolute_urls() -> None:
    plain = json.loads(seal(VERSION))
    assert "://" not in json.dumps(plain)
    assert not any("time" in key or "date" in key or "modified" in key for key in plain)


@pytest.mark.parametrize(
    ("field", "value", "counts"),
    [
        ("description", "other", False),
        ("mirror", False, False),
        ("source", {"url": "s3://elsewhere", "region": "eu-west-1"}, False),
        ("experiment", {"template": "x.yaml"}, False),
        ("name", "other", True),
        ("shards", {"bytes": "1 MB"}, True),
        ("shards", {"shuffle_seed": 3}, True),
        ("shards", {"count_min": None}, False),
        ("splits", {"train": "a/**"}, True),
        ("labels", {"from": "folder"}, True),
        ("validate", "decode", True),
        ("on_bad_sample", "skip", True),
        ("cache", {"records": "encoded"}, True),
    ],
)
def test_only_fields_that_shape_samples_count(field: str, value: object, counts: bool) -> None:
    changed = dataset(**{field: value})
    assert (inputs_digest(dataset(), "d", {}) != inputs_digest(changed, "d", {})) is counts
    assert (segment_id(dataset(), "d", []) != segment_id(changed, "d", [])) is counts


def test_the_version_of_the_shards_format_counts() -> None:
    other = identity.inputs_digest(dataset(), "d", {}, shards_version=2)
    assert other != inputs_digest(dataset(), "d", {})
    assert identity.segment_id(dataset(), "d", [], shards_version=2) != segment_id(
        dataset(), "d", []
    )


def test_a_least_number_of_shards_counts_by_the_sizes_it_leads_to() -> None:
    plain, least = dataset(), dataset(shards={"count_min": 3})
    assert segment_id(least, "d", []) == segment_id(plain, "d", [])
    assert segment_id(least, "d", [], {}) == segment_id(plain, "d", [])
    smaller = segment_id(least, "d", [], {"b": 10, "a": 20})
    assert smaller != segment_id(plain, "d", [])
    assert smaller == segment_id(plain, "d", [], {"a": 20, "b": 10})
    assert smaller != segment_id(least, "d", [], {"a": 10, "b": 20})


def test_the_order_of_splits_counts() -> None:
    one = dataset(splits={"a": "x/**", "b": "**"})
    other = dataset(splits={"b": "**", "a": "x/**"})
    assert inputs_digest(one, "d", {}) != inputs_digest(other, "d", {})


def test_the_order_of_hashed_splits_counts() -> None:
    one = dataset(splits={"by": "hash", "seed": 1, "fractions": {"a": 0.8, "b": 0.2}})
    other = dataset(splits={"by": "hash", "seed": 1, "fractions": {"b": 0.2, "a": 0.8}})
    assert inputs_digest(one, "d", {}) != inputs_digest(other, "d", {})
    assert segment_id(one, "d", []) != segment_id(other, "d", [])


def test_the_order_of_shards_does_not_count() -> None:
    rows = [("b", "d-b-000000.tar", 10, "0" * 64), ("a", "d-a-000000.tar", 10, "1" * 64)]
    assert content_digest(rows, [], None) == content_digest(reversed(rows), [], None)


def test_the_label_files_count() -> None:
    assert inputs_digest(dataset(), "d", {"val": "1"}) != inputs_digest(dataset(), "d", {})


def test_version_and_content_follow_from_what_is_in_them() -> None:
    assert version_id("d", [SegmentUse("a")]) != version_id("d", [SegmentUse("a", omitted=1)])
    rows = [("train", "d-train-000000.tar", 10, "0" * 64)]
    digest = content_digest(rows, ["a"], None)
    assert digest != content_digest(rows, ["b"], None)
    assert digest != content_digest(rows, ["a"], VERSION.cache)
    assert digest == content_digest(iter(rows), ["a"], None)


def test_keys_of_the_layout_are_pinned() -> None:
    assert layout.dataset_prefix("d") == "larder/d/"
    assert layout.shard_key("s", "train", "n.tar") == "segments/s/shards/train/n.tar"
    assert layout.segment_key("s") == "segments/s/segment.json"
    assert layout.version_key("v") == "versions/v/version.json"
    assert layout.tag_key("latest") == "tags/latest.json"
    assert layout.cache_key("s", "train", "f" * 64) == f"segments/s/cache/train-{'f' * 16}.mdb"
    assert (
        layout.index_key("s", "samples", "f" * 64) == f"segments/s/index/samples-{'f' * 16}.parquet"
    )
