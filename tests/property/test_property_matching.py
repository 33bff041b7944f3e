"""Entries of annotation files and objects, matched as a plain Python model matches them."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sample_names import split_key

from larder.errors import ConfigError
from larder.samples.matching import ENTRIES, Matching
from larder.samples.naming import bad_key_reason
from larder.samples.parts import named_objects

FOLDERS = st.sampled_from(["", "a/", "b/", "a/b/", "b/a/", "ü/"])
STEMS = st.sampled_from(["1", "2", "x", "a"])
KEYS = st.builds("{}{}.{}".format, FOLDERS, STEMS, st.sampled_from(["jpg", "txt", "seg.png"]))
NAMES = st.one_of(KEYS, st.builds("{}{}".format, FOLDERS, STEMS), st.just("no/such.jpg"))


def samples_of(name: str, keys: list[str]) -> set[str]:
    """The samples that a name fits."""
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
    keys=st.sets(KEYS, max_size=15),
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
