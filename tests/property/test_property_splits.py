"""Splits of random samples: by class, and by group."""

import math
import tempfile
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.strata import PUBLISHED, Divider, needs, targets
from tests.support.listings import object_batches, ordered

FRACTIONS = [
    {"train": 1.0},
    {"train": 0.8, "validation": 0.2},
    {"train": 0.7, "validation": 0.2, "test": 0.1},
    {"train": 0.05, "validation": 0.9, "test": 0.05},
]


def dataset(fractions: dict[str, float], seed: int, group: str | None) -> dict[str, Any]:
    splits = {"by": "hash", "seed": seed, "fractions": fractions, "group": group}
    return {"splits": {**splits, "stratify": True}, "labels": {"from": "folder"}}


def assigned(
    described: dict[str, Any], keys: set[str], cut: int = 100, before: dict[str, str] | None = None
) -> dict[str, str]:
    names = list(described["splits"]["fractions"])
    rows = [
        {"sample": key, "split": names.index(split)}
        for key, split in sorted((before or {}).items())
    ]
    published = [pa.RecordBatch.from_pylist(rows, schema=PUBLISHED)]
    with tempfile.TemporaryDirectory() as folder:
        objects = object_batches(keys, cut)
        found = ordered(Path(folder), objects, published=published, **described)
        return {
            row["key"]: row["split"]
            for batch in read_manifest(found.file.path, SAMPLE_ORDER, rows=found.samples)
            for row in batch.to_pylist()
        }


def sample_keys(most: int = 40) -> st.SearchStrategy[set[str]]:
    """``CLASS/gGROUP-NUMBER.jpg``, some with a second part."""
    key = st.builds(
        lambda name, group, number, ext: f"{name}/g{group}-{number}.{ext}",
        st.sampled_from("abc"),
        st.integers(0, 6),
        st.integers(0, 20),
        st.sampled_from(["jpg", "jpg", "txt"]),
    )
    return st.sets(key, min_size=1, max_size=most)


def counts_of(splits: dict[str, str]) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for key, split in splits.items():
        found[key.partition("/")[0]][split] += 1
    return found


def is_exact(counts: Counter[str], fractions: dict[str, float]) -> bool:
    """Whether each split has its fraction of a class, rounded up or down."""
    total = sum(counts.values())
    shares = {split: round(total * fraction, 6) for split, fraction in fractions.items()}
    return all(
        math.floor(share) <= counts[split] <= math.ceil(share) for split, share in shares.items()
    )


@pytest.mark.push
@given(
    keys=sample_keys(),
    fractions=st.sampled_from(FRACTIONS),
    seed=st.integers(0, 5),
    cut=st.integers(1, 9),
)
def test_every_class_is_divided_exactly_however_the_listing_is_cut(keys, fractions, seed, cut):
    described = dataset(fractions, seed, None)
    found = assigned(described, keys)
    assert found.keys() == {key.rpartition(".")[0] for key in keys}
    assert all(is_exact(counts, fractions) for counts in counts_of(found).values())
    assert assigned(described, keys, cut) == found


@given(
    before=sample_keys(), now=sample_keys(), fractions=st.sampled_from(FRACTIONS), seed=st.just(3)
)
@pytest.mark.push
def test_what_is_published_keeps_its_split_and_new_samples_fill_up_the_classes(
    before, now, fractions, seed
):
    described = dataset(fractions, seed, None)
    published = assigned(described, before)
    grown = assigned(described, before | now, before=published)
    assert {key: grown[key] for key in published} == published
    assert all(is_exact(counts, fractions) for counts in counts_of(grown).values())
    # As long as nothing is removed; then a split may have more than it should.
    left = assigned(described, now, before=published)
    assert all(left[key] == published[key] for key in left.keys() & published.keys())


@given(
    before=sample_keys(), now=sample_keys(), fractions=st.sampled_from(FRACTIONS), cut=st.just(3)
)
@pytest.mark.push
def test_groups_are_never_divided(before, now, fractions, cut):
    """A group is ``gN`` here, in any class."""
    described = dataset(fractions, 7, r"/(g\d)-")
    published = assigned(described, before, cut)
    grown = assigned(described, before | now, before=published)
    for splits in (published, grown):
        of_group: dict[str, set[str]] = defaultdict(set)
        for key, split in splits.items():
            of_group[key[2:4]].add(split)
        assert all(len(found) == 1 for found in of_group.values())
    assert {key: grown[key] for key in published} == published


def test_groups_divide_a_class_nearly_as_the_fractions_say():
    keys = {f"a/g{group}-{number}.jpg" for group in range(300) for number in range(group % 7 + 1)}
    found = assigned(dataset({"train": 0.8, "validation": 0.2}, 1, r"/(g\d+)-"), keys)
    counts = Counter(found.values())
    assert abs(counts["validation"] - 0.2 * len(keys)) <= 7


def test_classes_too_small_to_be_divided_are_spread():
    """A thousand classes of two samples: not all of them in the larger split."""
    keys = {f"{name:03}/{number}.jpg" for name in range(1_000) for number in range(2)}
    found = assigned(dataset({"train": 0.8, "validation": 0.2}, 1, None), keys)
    assert 330 < Counter(found.values())["validation"] < 470


@given(
    st.lists(st.tuples(st.integers(0, 50), st.floats(0, 0.999)), min_size=1, max_size=5),
    st.lists(st.integers(0, 10), min_size=15, max_size=15),
    st.sampled_from(FRACTIONS),
)
def test_needs_add_up_whatever_is_there(classes, there, fractions):
    new = np.array([count for count, _ in classes], np.int64)
    offsets = np.array([offset for _, offset in classes])
    kept = np.array(there).reshape(5, 3)[: len(classes), : len(fractions)].astype(np.int64)
    shares = list(fractions.values())
    wanted = targets(new + kept.sum(axis=1), shares, offsets)
    found = needs(wanted, kept, offsets)
    assert (found >= 0).all()
    assert (found.sum(axis=1) == new).all()
    ends = np.cumsum(wanted, axis=1)
    assert np.abs(ends - ends[:, -1:] * np.cumsum(shares)).max() <= 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40), st.integers(1, 7))
def test_the_divider_gives_the_same_in_pieces(units, cut):
    classes = np.array([each for each, _ in units], np.int64)
    weights = np.array([weight for _, weight in units], np.int64)
    totals = np.bincount(classes, weights, minlength=3).astype(np.int64)
    needed = targets(totals, [0.5, 0.3, 0.2], np.array([0.1, 0.5, 0.9]))
    whole = Divider(needed).splits(classes, weights)
    divider = Divider(needed)
    pieces = [
        divider.splits(classes[start : start + cut], weights[start : start + cut])
        for start in range(0, len(units), cut)
    ]
    assert np.array_equal(np.concatenate([*pieces, np.zeros(0, np.int16)]), whole)
    if (weights == 1).all():
        for name in range(3):
            assert (
                np.bincount(whole[classes == name], minlength=3).tolist() == needed[name].tolist()
            )
