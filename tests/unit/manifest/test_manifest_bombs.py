"""Manifests of a few kilobytes whose values take much more memory are refused."""

import struct
from contextlib import suppress

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from required import at_push

from larder.errors import DamageError
from larder.manifest import pages
from larder.manifest.manifest_files import read_manifest, write_manifest
from larder.manifest.schemas import COPIES, FAILURES
from tests.support.errors import larder_error

LONG = "a" * (4 << 20)
LABELS = pa.schema([pa.field("key", pa.string(), nullable=False), pa.field("label", pa.int64())])


@pytest.fixture(autouse=True)
def least(monkeypatch):
    monkeypatch.setattr(pages, "PARQUET_LEAST_BYTES", 1 << 20)


def written(path, table, **options):
    pq.write_table(table, path, compression="zstd", **options)
    assert path.stat().st_size < 100_000
    return path


def labels(keys):
    return pa.table([pa.array(keys, pa.string()), pa.nulls(len(keys), pa.int64())], LABELS)


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (labels([LONG]), {}),
        (labels([LONG]), {"use_dictionary": False}),
        (labels(["a" * 10_000] * 1_000), {}),  # once in a dictionary
        (labels(["a" * 10_000, "b"] * 1_000), {}),
        (labels(["a" * 10_000] * 1_000), {"use_dictionary": False}),
        (
            labels(["a" * 10_000 + str(n) for n in range(1_000)]),
            {"use_dictionary": False, "column_encoding": {"key": "DELTA_BYTE_ARRAY"}},
        ),
        (labels(["a"] * 1_000).replace_schema_metadata({"k": "v" * (3 << 20)}), {}),
    ],
    ids=["long", "plain", "repeated", "several", "pages", "prefixes", "metadata"],
)
def test_a_manifest_that_takes_too_much_is_refused(tmp_path, table, options):
    path = tmp_path / "a.parquet"
    pq.write_table(table, path, compression="zstd", **options)
    with larder_error("damage.manifest", str(path)):
        next(read_manifest(path, LABELS))


def test_lists_of_nothing_are_counted(tmp_path):
    kind = COPIES.field("copies").type
    structs = pa.array([None] * 3_000_000, pa.struct(list(kind.value_type)))
    structs = pa.StructArray.from_arrays(
        [structs.field(0), structs.field(1)], fields=list(kind.value_type)
    )
    lists = pa.ListArray.from_arrays(pa.array([0, len(structs)], pa.int32()), structs, type=kind)
    path = written(tmp_path / "a.parquet", pa.table([lists], schema=COPIES))
    with larder_error("damage.manifest", str(path)):
        next(read_manifest(path, COPIES))


def test_the_header_of_a_page_is_asked_and_not_the_metadata(tmp_path):
    """Although the metadata says that the column takes a kilobyte."""
    path = written(tmp_path / "a.parquet", labels([LONG]), use_dictionary=False)
    true = pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size
    data, number = path.read_bytes(), varint(true)
    (footer,) = struct.unpack("<I", data[-8:-4])
    head, tail = data[: -8 - footer], data[-8 - footer :]
    assert tail.count(number) >= 1
    path.write_bytes(head + tail.replace(number, varint(1_000, len(number))))
    assert pq.read_metadata(path).row_group(0).column(0).total_uncompressed_size == 1_000
    with larder_error("damage.manifest", str(path)):
        next(read_manifest(path, LABELS))


def varint(number, length=0):
    """Thrift's form of a number, of this length at least."""
    number, groups = 2 * number, []
    while number or not groups or len(groups) < length:
        groups.append(number & 127 | 128)
        number >>= 7
    return bytes([*groups[:-1], groups[-1] & 127])


@pytest.mark.parametrize("at", range(4, 40))
def test_a_flipped_byte_in_the_header_of_a_page_is_damage_or_nothing(tmp_path, at):
    path = written(tmp_path / "a.parquet", labels(["a", "b"]), write_page_checksum=True)
    data = bytearray(path.read_bytes())
    data[at] ^= 255
    path.write_bytes(data)
    with larder_error("damage.manifest", str(path)):
        list(read_manifest(path, LABELS))


def test_long_keys_that_begin_alike_are_read(tmp_path, monkeypatch):
    monkeypatch.undo()
    rows = [
        {"key": f"{'x' * 3_900}{n}", "code": "c", "message": "m", "attempts": 1}
        for n in range(9_999)
    ]
    batch = pa.RecordBatch.from_pylist(rows, schema=FAILURES)
    path = tmp_path / "a.parquet"
    write_manifest(path, FAILURES, [batch])
    assert sum(each.num_rows for each in read_manifest(path, FAILURES)) == len(rows)


@pytest.mark.parametrize("bit", [0, 7, *at_push(*range(1, 7))])
def test_a_flipped_bit_in_the_footer_is_damage_or_nothing(tmp_path, bit):
    """And never ends the process, as pyarrow's own view of a column's metadata does."""
    path = written(tmp_path / "a.parquet", labels(["a", "b"]), write_page_checksum=True)
    whole = path.read_bytes()
    for at in range(len(whole) - 8 - int.from_bytes(whole[-8:-4], "little"), len(whole)):
        data = bytearray(whole)
        data[at] ^= 1 << bit
        path.write_bytes(data)
        with suppress(DamageError):
            assert sum(each.num_rows for each in read_manifest(path, LABELS)) == 2
