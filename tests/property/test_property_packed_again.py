"""A shard that is packed from old shards is the shard that is packed from the source."""

import uuid

import pyarrow as pa
import pytest
from format_options import RAGGED, use
from hypothesis import given, settings
from hypothesis import strategies as st

from larder.shards.formats import shard_format
from larder.shards.model import ShardResult
from larder.shards.old_shards import OldShards
from larder.store import Store
from tests.support import packing
from tests.support.memory import MemoryStore, forget
from tests.support.packing import places_of, planned
from tests.support.sample_orders import Content, order_samples, with_packed

FORMAT = st.sampled_from(RAGGED)
LABEL = st.none() | st.integers(-(2**31), 2**31 - 1)
SPLIT = st.sampled_from(["train", "validation"])

contents = st.lists(
    st.builds(
        Content,
        st.text("ab/é", min_size=1, max_size=8).map(lambda text: text.strip("/") + "k"),
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
    with OldShards(store, formats, lambda *names: "/".join(names)) as old_shards:
        assert pack(again, store, "found", format_name, shard_bytes, how, old_shards) == expected
    for result in expected:
        for file in result.files:
            key = f"{result.split}/{file.name}"
            assert store.get(f"found/{key}") == store.get(f"expected/{key}")
    forget(name)
