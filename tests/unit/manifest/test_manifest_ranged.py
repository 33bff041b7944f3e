"""Ranges of rows of a manifest, by ranged requests."""

import random
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
import pytest

from larder.errors import DamageError
from larder.manifest.files import write_manifest
from larder.manifest.ranged import RangedManifest
from larder.manifest.schemas import SAMPLES

ROWS = [
    {
        "id": number,
        "split": "train",
        "key": f"a/{number:04}",
        "segment": "s" * 32,
        "shard": f"d-train-{number // 9:06}.tar",
        "offset": 1024 * number,
        "length": 1024,
        "label": None if number % 5 else number,
        "parts": [
            {"ext": ext, "source": f"{number}.{ext}", "offset": number, "length": 3, "crc32c": 7}
            for ext in ("jpg", "txt")[: 1 + number % 2]
        ],
    }
    for number in range(100)
]
COLUMNS = ["key", "label", "offset", "parts.list.element.ext", "parts.list.element.offset"]


class File:
    """Counts requests."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.requests: list[tuple[int, int]] = []

    def fetch(self, offset: int, length: int) -> bytes:
        self.requests.append((offset, length))
        return self.data[offset : offset + length]

    def open(self, schema: pa.Schema = SAMPLES) -> RangedManifest:
        return RangedManifest(self.fetch, len(self.data), schema, "memory://x/samples.parquet")


@pytest.fixture
def data(tmp_path: Path) -> bytes:
    batch = pa.RecordBatch.from_pylist(ROWS, schema=SAMPLES)
    path = tmp_path / "samples.parquet"
    write_manifest(path, SAMPLES, [batch], row_group_rows=16)
    return path.read_bytes()


def read(manifest: RangedManifest, first: int, count: int) -> list[dict]:  # type: ignore[type-arg]
    batches = manifest.rows(first, count, COLUMNS)
    return [row for batch in batches for row in batch.to_pylist()]


def expected(first: int, count: int) -> list[dict]:  # type: ignore[type-arg]
    return [
        {
            **{name: row[name] for name in ("key", "offset", "label")},
            "parts": [{"ext": part["ext"], "offset": part["offset"]} for part in row["parts"]],  # type: ignore[index, attr-defined]
        }
        for row in ROWS[first : first + count]
    ]


@pytest.mark.parametrize("first", [0, 1, 15, 16, 17, 50, 99])
@pytest.mark.parametrize("count", [0, 1, 2, 16, 40, 100])
def test_any_range_of_rows(data, first, count):
    count = min(count, 100 - first)
    file = File(data)
    manifest = file.open()
    before = len(file.requests)
    assert read(manifest, first, count) == expected(first, count)
    groups = len({row // 16 for row in range(first, first + count)})
    assert len(file.requests) - before == groups, "columns close to each other are read together"


@pytest.mark.parametrize("cut", [0, 3, 50, 100_000])
def test_a_file_that_is_cut(data, cut):
    with pytest.raises(DamageError):
        read(File(data[:cut] if cut < len(data) else data[:-1]).open(), 0, 100)


def test_a_flipped_bit_is_found_or_harmless(data):
    found = 0
    for place in range(0, len(data), 211):
        flipped = data[:place] + bytes([data[place] ^ 16]) + data[place + 1 :]
        try:
            assert read(File(flipped).open(), 0, 100) == expected(0, 100)
        except DamageError:
            found += 1
    assert found > 20


def footer(data: bytes) -> range:
    """The end of the file, which no checksum covers: it says where columns are."""
    length = int.from_bytes(data[-8:-4], "little")
    return range(len(data) - 8 - length, len(data))


def check_flips(data: bytes, places: Iterable[int], bits: range) -> None:
    for place in places:
        for bit in bits:
            flipped = bytearray(data)
            flipped[place] ^= 1 << bit
            with suppress(DamageError):
                assert read(File(bytes(flipped)).open(), 10, 30) == expected(10, 30), (place, bit)


def test_a_damaged_end_of_the_file_is_found_or_harmless(data):
    """pyarrow ended the process, without an error, where it says how often levels occur."""
    first = footer(data)[0]
    ending, renamed = [456, 537, 674, 781], range(159, 177)
    check_flips(data, [first + place for place in (*ending, *renamed)], range(5, 6))
    check_flips(data, random.Random(1).sample(footer(data), 30), range(8))


@pytest.mark.exhaustive
def test_many_flipped_bits_of_the_end_of_the_file_are_found_or_harmless(data):
    check_flips(data, random.Random(2).sample(footer(data), 200), range(8))
