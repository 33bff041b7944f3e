"""Samples in shards: in order, of the size that is planned, the same from old shards."""

import tempfile
import uuid
from itertools import chain, pairwise
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from format_options import RAGGED, use
from hypothesis import example, given, settings
from hypothesis import strategies as st

from larder.shards.formats import shard_format, tar
from larder.shards.model import ShardPlan, ShardResult
from larder.shards.old_shards import OldShards
from larder.shards.packing import (
    batch_shards,
    plan_shards,
    running_totals,
    target_for,
)
from larder.store import Store
from tests.support import packing
from tests.support.memory import MemoryStore, forget
from tests.support.packing import compared, places_of, planned
from tests.support.sample_orders import Content, order_samples, with_packed

WEBDATASET = shard_format("webdataset")

sizes = st.lists(st.integers(512, 5000), max_size=40)
split_names = st.sampled_from(["train", "validation", "test"])
splits = st.dictionaries(split_names, sizes).map(lambda found: list(found.items()))
targets = st.integers(1, 20_000)


@given(splits, targets)
@example([("train", [512, 512]), ("validation", []), ("test", [4000, 512])], 2048)
def test_every_row_is_in_one_shard_in_order(content, target_bytes):
    plans = list(plan_shards(_totals(content), target_bytes, "digits", WEBDATASET))
    all_rows = [(split, size) for split, group in content for size in group]
    row = 0
    for plan in plans:
        taken = all_rows[row : row + plan.rows]
        assert plan.first_row == row
        assert plan.rows == len(taken) > 0
        assert {split for split, _ in taken} == {plan.split}
        assert plan.bytes == sum(size for _, size in taken) + len(tar.END)
        if plan.rows > 1 and plan.bytes > target_bytes:
            before = plan.bytes - taken[-1][1]
            assert before < 0.95 * target_bytes
            assert plan.bytes - target_bytes < target_bytes - before, "closer than without it"
        row += plan.rows
    assert row == len(all_rows)


@given(st.lists(st.integers(512, 2_000), max_size=200), st.integers(20_000, 60_000))
@example([2_000] * 40, 20_000)
@example([*[1_700] * 11, 2_000, 512], 20_000)
def test_shards_of_small_samples_are_nearly_as_long_as_they_should_be(group, target_bytes):
    """Every sample is at most a tenth; the last shard has what is left."""
    plans = _filled(group, target_bytes)
    for plan in plans[:-1]:
        assert 0.95 * target_bytes <= plan.bytes <= 1.05 * target_bytes
    assert all(plan.bytes <= 1.05 * target_bytes for plan in plans[-1:])


@given(splits, st.integers(1, 9))
def test_shards_of_a_number_of_samples(content, rows):
    plans = list(plan_shards(_totals(content), 1, "d", WEBDATASET, samples_per_shard=rows))
    for split, group in content:
        own = [plan for plan in plans if plan.split == split]
        assert [plan.rows for plan in own[:-1]] == [rows] * (len(own) - 1)
        assert sum(plan.rows for plan in own) == len(group)
        assert sum(plan.bytes - len(tar.END) for plan in own) == sum(group)
        assert all(0 < plan.rows <= rows for plan in own)


def _filled(group: list[int], target_bytes: int) -> list[ShardPlan]:
    return list(plan_shards(_totals([("train", group)]), target_bytes, "d", WEBDATASET))


def _totals(content: list[tuple[str, list[int]]]) -> dict[str, np.ndarray]:
    with tempfile.TemporaryDirectory() as folder:
        sizes = ((split, np.array(group, np.int64)) for split, group in content)
        return running_totals(sizes, Path(folder) / "totals")


def _fitted(content: list[tuple[str, list[int]]], target_bytes: int, least: int) -> dict[str, int]:
    return {
        split: target_for(ends, target_bytes, least, WEBDATASET.empty_bytes)
        for split, ends in _totals(content).items()
    }


@given(splits, targets, st.integers(1, 50))
@example([("train", [4000] + [512] * 9), ("validation", [512])], 20_000, 5)
@example([("train", [512] * 39)], 20_000, 20)
def test_every_split_gets_as_many_shards_as_it_should(content, target_bytes, least):
    targets = _fitted(content, target_bytes, least)
    plans = list(plan_shards(_totals(content), target_bytes, "d", WEBDATASET, targets=targets))
    row = 0
    for split, group in content:
        own = [plan for plan in plans if plan.split == split]
        wanted = min(least, len(group))
        without = _filled(group, target_bytes)
        assert len(own) >= max(wanted, len(without))
        if len(without) >= wanted:
            assert not group or targets[split] == target_bytes, "nothing is packed anew"
        else:
            assert len(own) <= max(1, 2 * (wanted - 1))
        if len(without) < wanted and targets[split] > 1:
            # A target of a byte less gives more shards; so no other makes the longest shorter.
            assert len(_filled(group, targets[split] - 1)) > len(own)
        for plan in own:
            assert plan.first_row == row
            row += plan.rows
    assert row == sum(len(group) for _, group in content)


@pytest.mark.parametrize(("samples", "least"), [(1_418, 2), (10_000, 16), (5_000, 64)])
@pytest.mark.parametrize("target_bytes", [10**9, 2_200_000])
def test_no_shard_is_left_with_a_few_samples(samples, least, target_bytes):
    """Such a shard leaves its reader idle, and a rank of DDP waits for ever for the others."""
    random = Random(samples)
    group = [512 * (2 + random.randrange(9)) for _ in range(samples)]
    targets = _fitted([("train", group)], target_bytes, least)
    rows = [
        plan.rows
        for plan in plan_shards(
            _totals([("train", group)]), 10**9, "d", WEBDATASET, targets=targets
        )
    ]
    assert len(rows) >= least
    assert min(rows) > 0.8 * max(rows)


@given(splits, targets, st.integers(1, 50), st.integers(1, 7))
def test_plans_and_targets_do_not_depend_on_how_the_sizes_arrive(
    content, target_bytes, least, step
):
    pieces = [
        (split, group[start : start + step])
        for split, group in content
        for start in range(0, len(group), step)
    ]
    plans = list(plan_shards(_totals(content), target_bytes, "digits", WEBDATASET))
    assert list(plan_shards(_totals(pieces), target_bytes, "digits", WEBDATASET)) == plans
    whole = [(split, group) for split, group in content if group]
    fitted = _fitted(whole, target_bytes, least)
    assert _fitted(pieces, target_bytes, least) == fitted


@given(splits, targets, st.integers(1, 60_000))
def test_batches_hold_all_shards_in_order(content, target_bytes, batch_bytes):
    plans = list(plan_shards(_totals(content), target_bytes, "digits", WEBDATASET))
    batches = batch_shards(plans, batch_bytes)
    assert [plan for batch in batches for plan in batch.shards] == plans
    for batch in batches:
        assert batch.bytes <= batch_bytes or len(batch.shards) == 1
        assert batch.first_row == batch.shards[0].first_row
        assert batch.rows == sum(plan.rows for plan in batch.shards)
    for batch, following in pairwise(batches):
        assert batch.bytes + following.shards[0].bytes > batch_bytes


@given(splits, targets, st.integers(1, 50_000), st.data())
def test_rows_of_a_batch_are_contiguous_whatever_is_finished_already(
    found, target, batch_bytes, data
):
    plans = list(plan_shards(_totals(found), target, "d", WEBDATASET))
    missing = [plan for plan in plans if data.draw(st.booleans())]
    batches = batch_shards(missing, batch_bytes)
    assert [plan for batch in batches for plan in batch.shards] == missing
    for batch in batches:
        places = (range(plan.first_row, plan.first_row + plan.rows) for plan in batch.shards)
        rows = list(chain.from_iterable(places))
        assert rows == list(range(batch.first_row, batch.first_row + batch.rows))


FORMAT = st.sampled_from(RAGGED)
LABEL = st.none() | st.integers(-(2**31), 2**31 - 1)
SPLIT = st.sampled_from(["train", "validation"])

contents = st.lists(
    st.builds(
        Content,
        st.text("ab/é", min_size=1, max_size=8).map(lambda text: text.strip("/") + "k")
        | st.integers(90, 300).map(lambda length: "n" * length),
        st.dictionaries(
            st.sampled_from(["jpg", "json", "seg.png", "zip"]),
            st.one_of(st.binary(max_size=40), st.integers(0, 9_000).map(lambda n: b"x" * n)),
            min_size=1,
        ),
        LABEL,
        SPLIT,
    ),
    min_size=1,
    max_size=25,
    unique_by=lambda content: content.key,
)
reading = st.tuples(st.sampled_from([1, 3]), st.sampled_from([200, 20_000, 1 << 24]))


def in_splits(order: pa.RecordBatch, places: list[int]) -> pa.RecordBatch:
    """The rows at these places, one split after the other."""
    splits = order.column("split").to_pylist()
    return order.take(pa.array(sorted(places, key=lambda place: splits[place]), pa.int64()))


def pack(
    order: pa.RecordBatch,
    store: Store,
    folder: str,
    format_name: str,
    shard_bytes: int,
    how: tuple[int, int] = (1, 1 << 24),
    old_shards: OldShards | None = None,
) -> list[ShardResult]:
    format_ = shard_format(*use(format_name))
    plans = planned(order, format_, shard_bytes)
    limits = {"concurrency": how[0], "memory_bytes": how[1]}
    return packing.pack(
        order, store, format_, plans, folder=folder, old_shards=old_shards, **limits
    )


@pytest.mark.push
@settings(max_examples=2 * settings.default.max_examples)
@given(
    found=contents,
    segments=st.lists(st.tuples(FORMAT, st.integers(1, 30_000)), min_size=1, max_size=3),
    data=st.data(),
    format_name=FORMAT,
    shard_bytes=st.integers(1, 40_000),
    how=reading,
)
def test_packed_from_old_shards_as_from_the_source(
    found, segments, data, format_name, shard_bytes, how
):
    name = uuid.uuid4().hex
    store: Store = MemoryStore(name)
    order = order_samples(store, found)
    count = order.num_rows
    # Each sample is in one of the segments, in some order, or in none.
    places = data.draw(st.lists(st.integers(-1, len(segments) - 1), min_size=count, max_size=count))
    index = []
    for number, (old_format, old_bytes) in enumerate(segments):
        own = [row for row, place in enumerate(places) if place == number]
        some = in_splits(order, data.draw(st.permutations(own)))
        for result in pack(some, store, f"s{number}", old_format, old_bytes):
            index += places_of(result, f"s{number}")
    # Now they may have another split, another label and another order.
    columns = {
        "split": data.draw(st.lists(SPLIT, min_size=count, max_size=count)),
        "label": data.draw(st.lists(LABEL, min_size=count, max_size=count)),
    }
    for column, values in columns.items():
        at = order.schema.get_field_index(column)
        field = order.schema.field(at)
        order = order.set_column(at, field, pa.array(values, field.type))
    order = in_splits(order, data.draw(st.permutations(range(count))))
    expected = pack(order, store, "expected", format_name, shard_bytes)
    again = with_packed(order, index)
    for row in again.to_pylist():
        if row["packed"] is not None:
            for part in row["parts"]:
                store.delete(part["key"])
    formats = {f"s{number}": use(segment[0]) for number, segment in enumerate(segments)}
    with OldShards(store, formats, lambda shard: shard.split("/")[0]) as old_shards:
        found_shards = pack(again, store, "found", format_name, shard_bytes, how, old_shards)
    assert compared(*found_shards) == compared(*expected)
    for result in expected:
        for file in result.files:
            key = f"{result.split}/{file.name}"
            assert store.get(f"found/{key}") == store.get(f"expected/{key}")
    forget(name)
