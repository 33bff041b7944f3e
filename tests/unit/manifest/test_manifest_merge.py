"""Two sorted streams, cut at the same places: joined piece by piece, they give the plain join."""

from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.query import Stream
from larder.manifest.sort import aligned, whole_keys
from tests.support.errors import larder_error

LEFT = pa.schema(
    [
        pa.field("split", pa.int16(), nullable=False),
        pa.field("order", pa.uint64(), nullable=False),
        pa.field("key", pa.string(), nullable=False),
        pa.field("value", pa.int32()),
    ]
)
RIGHT = pa.schema(
    [pa.field("other", pa.string()), *(LEFT.field(name) for name in ("key", "order", "split"))]
)
BY = ("split", "order", "key")

Key = tuple[int, int, str]

# Characters on both sides of the surrogates: UTF-16 would order them otherwise.
TEXTS = st.text(st.sampled_from("a/é\ue000\U0001f600"), max_size=2)
KEYS = st.tuples(st.integers(0, 1), st.sampled_from([0, 1, 2**63, 2**64 - 1]), TEXTS)
CUTS = st.lists(st.integers(1, 25), max_size=6)
SIDES = st.lists(KEYS, max_size=25).map(
    lambda keys: sorted(keys, key=lambda key: (*key[:2], key[2].encode()))
)


def stream(schema: pa.Schema, keys: Sequence[Key], cuts: Sequence[int]) -> Stream:
    rows = [
        {"split": a, "order": b, "key": c, "value": at, "other": str(at)}
        for at, (a, b, c) in enumerate(keys)
    ]
    edges = sorted({0, len(rows), *(min(cut, len(rows)) for cut in cuts)})

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pylist([], schema=schema)
        for start, stop in pairwise(edges):
            yield pa.RecordBatch.from_pylist(rows[start:stop], schema=schema)
            yield pa.RecordBatch.from_pylist([], schema=schema)

    return Stream(schema, batches())


def keys_of(batch: pa.RecordBatch) -> list[Key]:
    return list(zip(*(batch.column(name).to_pylist() for name in BY), strict=True))


def test_a_stream_is_not_read_ahead():
    """Memory is that of one batch of each, however long the other stream is."""
    read: list[str] = []

    def batches(name: str, numbers: Sequence[int]) -> Iterator[pa.RecordBatch]:
        for number in numbers:
            read.append(f"{name}{number}")
            row: dict[str, Any] = {"split": 0, "order": number, "key": ""}
            yield pa.RecordBatch.from_pylist([row], schema=RIGHT)

    left, right = Stream(RIGHT, batches("l", range(4))), Stream(RIGHT, batches("r", [2]))
    for one, _ in aligned((left, right), BY):
        assert len([name for name in read if name[0] == "l"]) <= keys_of(one)[-1][1] + 1
    assert read == ["l0", "r2", "l1", "l2", "l3"]


@given(st.lists(st.tuples(SIDES, CUTS), min_size=1, max_size=4))
def test_any_number_of_streams_is_cut_at_the_same_keys(sides):
    seen: list[list[Key]] = [[] for _ in sides]
    last: Key | None = None
    for pieces in aligned([stream(LEFT, keys, cuts) for keys, cuts in sides], BY):
        found = [keys_of(piece) for piece in pieces]
        assert any(found)
        first = min((keys[0] for keys in found if keys), key=by_bytes)
        assert last is None or by_bytes(last) <= by_bytes(first)
        last = max((keys[-1] for keys in found if keys), key=by_bytes)
        for one, keys in zip(seen, found, strict=True):
            one += keys
    assert seen == [list(keys) for keys, _ in sides]


def by_bytes(key: Key) -> tuple[int, int, bytes]:
    return (*key[:2], key[2].encode())


@given(st.lists(TEXTS, max_size=25).map(lambda keys: sorted(keys, key=str.encode)), CUTS)
def test_no_batch_of_whole_keys_ends_within_a_key(keys, cuts):
    rows = [(0, 0, key) for key in keys]
    batches = [keys_of(each) for each in whole_keys(stream(LEFT, rows, cuts).batches, "key")]
    assert [key for batch in batches for key in batch] == rows
    assert all(batches)
    assert all(before[-1] != after[0] for before, after in pairwise(batches))


def test_rows_out_of_order_are_damage():
    """Else rows of a store that repeats pages would be compared for ever."""
    keys = [(0, 0, key) for key in "cba"]
    with larder_error("damage.manifest"):
        list(islice(aligned([stream(LEFT, keys, [])], ["key"]), 10))
