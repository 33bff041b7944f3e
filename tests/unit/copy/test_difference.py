"""What the mirror holds already: the table, and the join against look-ups."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from larder.copy.difference import with_copies
from larder.manifest.schemas import OBJECTS
from larder.source.inventory import object_batches
from larder.store.base import ObjectInfo

MD5 = "0" * 31 + "a"
OTHER_MD5 = "0" * 31 + "b"

Pair = tuple[str, str, str, str | None]
"""Key, etag at the source, etag of the copy, and checksum."""


def info(key: str = "k", size_bytes: int = 1, etag: str = "e") -> ObjectInfo:
    return ObjectInfo(key, size_bytes, etag, 0)


def receipts(pairs: Iterable[Pair]) -> pa.RecordBatch:
    names = ("key", "etag", "mirror_etag", "checksum")
    rows = [
        {"size_bytes": 1, "modified": 0, **dict(zip(names, pair, strict=True))} for pair in pairs
    ]
    return pa.RecordBatch.from_pylist(rows, schema=OBJECTS)


def copies(
    work_dir: Path,
    source: Iterable[ObjectInfo],
    mirrored: Iterable[ObjectInfo],
    known: Iterable[Pair],
    *,
    md5: bool = True,
) -> dict[str, tuple[str | None, str | None]]:
    """By key: etag of the copy and checksum, in the order in which they come."""
    found = with_copies(
        object_batches(source), mirrored, [receipts(known)], [], md5=md5, work_dir=work_dir
    )
    rows = [row for batch in found for row in batch.to_pylist()]
    return {row["key"]: (row["mirror_etag"], row["checksum"]) for row in rows}


@pytest.mark.parametrize(
    ("source", "mirrored", "known", "md5", "same"),
    [
        (info(), None, None, True, False),
        (info(), None, ("k", "e", "e", None), True, False),
        (info(size_bytes=1), info(size_bytes=2), ("k", "e", "e", None), True, False),
        (info(etag="a"), info(etag="b"), ("k", "a", "b", None), False, True),
        (info(etag="a2"), info(etag="b"), ("k", "a", "b", None), False, False),
        (info(etag="a"), info(etag="b2"), ("k", "a", "b", None), False, False),
        (info(etag=MD5), info(etag=MD5), None, True, True),
        (info(etag=MD5), info(etag=MD5), None, False, False),
        (info(etag=MD5), info(etag=OTHER_MD5), None, True, False),
        (info(etag="x-2"), info(etag="x-2"), None, True, False),
        (info(etag=MD5.upper()), info(etag=MD5.upper()), None, True, False),
    ],
)
def test_the_table(tmp_path, source, mirrored, known, md5, same):
    found = copies(
        tmp_path, [source], [mirrored] if mirrored else [], [known] if known else [], md5=md5
    )
    assert found == {"k": (mirrored.etag if mirrored and same else None, None)}


def test_a_checksum_comes_from_the_receipt_that_fits(tmp_path):
    known: list[Pair] = [
        ("k", "old", "m", "crc32c:00000001"),
        ("k", "e", "m", None),
        ("k", "e", "m", "crc32c:00000002"),
        ("k", "e", "other", "crc32c:00000003"),
    ]
    assert copies(tmp_path, [info()], [info(etag="m")], known) == {"k": ("m", "crc32c:00000002")}
    assert copies(tmp_path, [info()], [info(etag="n")], known) == {"k": (None, None)}


@pytest.mark.exhaustive
def test_any_number_of_objects_fits_into_the_memory_of_a_sort(tmp_path):
    count, rows = 250_000, 50_000

    def batches(**columns: str) -> Iterator[pa.RecordBatch]:
        """Rows of keys and etags that do not compress."""
        for first in range(0, count, rows):
            numbers = np.arange(first, first + rows)
            texts = pc.utf8_lpad(pa.array(numbers).cast(pa.string()), 60, "0")
            digests = np.random.default_rng(first).bytes(16 * rows).hex()
            etags = [digests[at : at + 32] for at in range(0, len(digests), 32)]
            known = {
                "key": texts,
                "size_bytes": pa.array(numbers),
                "etag": pa.array(etags),
                "modified": pa.array(numbers, OBJECTS.field("modified").type),
            }
            known |= {name: known[of] for name, of in columns.items()}
            nothing = pa.nulls(rows, pa.string())
            yield pa.record_batch(
                [known.get(name, nothing) for name in OBJECTS.names], schema=OBJECTS
            )

    listed = (
        ObjectInfo(*row)
        for batch in batches()
        for row in zip(*(batch.column(at).to_pylist() for at in range(3)), [0] * rows, strict=True)
    )
    receipts = batches(mirror_etag="etag", checksum="etag")
    found = with_copies(batches(), listed, receipts, [], md5=False, work_dir=tmp_path)
    seen = [(len(batch), batch.column("mirror_etag").null_count) for batch in found]
    assert [sum(column) for column in zip(*seen, strict=True)] == [count, 0]
