import pyarrow as pa
import pytest

from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.order import from_objects
from larder.segments.mirror import _due

KEPT = pa.schema([SAMPLE_ORDER.field(name) for name in ("split", "key")])
FIELDS = ("ext", "key", "size_bytes", "etag")


def row(number: int, split: str = "train", parts: int = 2) -> dict[str, object]:
    entries = [
        {
            "ext": f"e{part}",
            "key": f"k{number}.e{part}",
            "size_bytes": 10**part + number,
            "etag": f"t{number}",
        }
        for part in range(parts)
    ]
    return {"split": split, "key": f"k{number}", "parts": entries}


PACKED = {"segment": "s", "split": "t", "shard": "x", "offset": 0, "length": 1, "parts": []}


def mixed() -> pa.RecordBatch:
    """From objects, packed, bad, with a copy, with one of two copies, of no sample."""
    rows = [row(number) for number in range(5)] + [row(5, "", 1)]
    rows[1]["packed"] = PACKED
    rows[2]["bad"] = "no"
    for number, count in ((3, 2), (4, 1)):
        parts: list[dict[str, object]] = rows[number]["parts"]  # type: ignore[assignment]
        for part in parts[:count]:
            part["mirror_etag"] = "m"
    return pa.RecordBatch.from_pylist([*rows, *rows], schema=SAMPLE_ORDER)


@pytest.mark.parametrize("first", [0, 1, 5])
def test_neither_packed_nor_bad_samples_are_copied(first):
    batch = mixed()
    batches = [batch.slice(0, first), batch.slice(first)]
    due = [tuple(row.values()) for rows in _due(batches) for row in rows.to_pylist()]
    objects = [("k0.e0", 1), ("k0.e1", 10), ("k4.e1", 14), ("k5.e0", 6)]
    samples = [0, 0, 4, 5]
    assert due == [
        (key, size_bytes, f"t{key[1]}", sample + more)
        for more in (0, 6)
        for (key, size_bytes), sample in zip(objects, samples, strict=True)
    ]
    assert from_objects(batch.slice(0, 6)).tolist() == [True, False, False, True, True, True]
