"""What is known of copies, in memory."""

from __future__ import annotations

import tracemalloc
from itertools import chain

import pyarrow as pa

from larder.copy.mirror_reader import Copies, KnownCopy

ROWS = pa.schema([(name, pa.string()) for name in ("key", "etag", "mirror_etag", "checksum")])


def rows(*copies: tuple[str, str, str | None, str | None]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(ROWS.names, copy, strict=True)) for copy in copies], schema=ROWS
    )


def test_the_last_copy_of_an_object_counts() -> None:
    some = rows(("a", "1", "m1", None), ("é\0\n", "2", "m2", "c2"), ("unknown", "3", None, None))
    more = rows(("a", "9", "m9", "c9"), ("b", "4", "m4", "c4"))
    copies = Copies([some, more, rows()])
    assert copies.get("a") == KnownCopy("9", "m9", "c9")
    assert copies.get("é\0\n") == KnownCopy("2", "m2", "c2")
    assert copies.get("b") == KnownCopy("4", "m4", "c4")
    assert copies.get("unknown") is copies.get("") is None


def test_copies_in_memory_take_little_of_it() -> None:
    """Their texts, their places, and an index of 16 bytes."""
    texts = [(f"folder/{n:030}", f"{n:030}", f"{n:030}", f"crc32c:{n:08x}") for n in range(20_000)]
    batches = [rows(*texts[first : first + 2_000]) for first in range(0, 20_000, 2_000)]
    text_bytes = sum(map(len, chain.from_iterable(texts)))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    copies = Copies(batches)
    taken = tracemalloc.get_traced_memory()[0] + pa.total_allocated_bytes() - before
    tracemalloc.stop()
    assert taken < text_bytes + 50 * len(texts)
    assert copies.get(texts[-1][0]) == texts[-1][1:]
