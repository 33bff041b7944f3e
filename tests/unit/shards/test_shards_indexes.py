"""Index files for readers other than Larder's."""

from __future__ import annotations

import io
import re
import tarfile

import pyarrow as pa
import pytest

from larder.manifest.spool import Spool
from larder.shards.formats.tfrecord.format import DaliTFRecordIndex
from larder.shards.formats.webdataset import DaliTarIndex
from larder.shards.indexes import ReaderIndex, index_files
from larder.shards.model import NO_ROWS, ROWS


def rows(*samples: tuple[str, dict[str, tuple[int, int]]]) -> Spool:
    return Spool.of([batch(*samples)], ROWS)


def text(found: Spool) -> bytes:
    """The index of these rows."""
    pieces = DaliTarIndex().content(found)
    assert pieces is not None
    return b"".join(pieces)


def batch(*samples: tuple[str, dict[str, tuple[int, int]]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [
            {
                "key": key,
                "offset": 0,
                "length": 0,
                "label": None,
                "parts": [
                    {"ext": ext, "offset": offset, "length": length, "crc32c": 0}
                    for ext, (offset, length) in parts.items()
                ],
            }
            for key, parts in samples
        ],
        schema=ROWS,
    )


def as_dali_reads(text: bytes) -> list[list[tuple[str, ...]]]:
    """As ``ParseIndexFile`` of DALI's webdataset_loader.cc does, with its complaints."""
    first, *lines = text.decode().split("\n")
    version, count = first.split()
    assert version in ("v1.1", "v1.2")
    words = 4 if version == "v1.2" else 3
    samples = []
    for line in lines[: int(count)]:
        found = re.findall(r"[^ \t\n\v\f\r]+", line)
        assert found
        assert len(found) % words == 0
        samples.append([tuple(found[at : at + words]) for at in range(0, len(found), words)])
        assert all(int(member[1]) % 512 == 0 for member in samples[-1])
    assert lines[int(count) :] == [""]
    return samples


def test_dali_gets_a_line_for_each_sample() -> None:
    found = text(
        rows(("a/1", {"cls": (512, 1), "jpg": (1536, 700)}), ("a/é", {"seg.png": (4096, 0)}))
    )
    assert (
        found
        == "v1.2 2\ncls 512 1 a/1.cls jpg 1536 700 a/1.jpg\nseg.png 4096 0 a/é.seg.png\n".encode()
    )
    assert as_dali_reads(found)[1] == [("seg.png", "4096", "0", "a/é.seg.png")]


def test_a_name_with_a_space_is_left_out_of_the_index_of_its_shard() -> None:
    found = text(rows(("my cat", {"jpg": (512, 9)}), ("dog", {"jpg": (1536, 2)})))
    assert found == b"v1.1 2\njpg 512 9\njpg 1536 2\n"
    assert as_dali_reads(found) == [[("jpg", "512", "9")], [("jpg", "1536", "2")]]


def test_a_shard_with_a_space_in_an_extension_has_no_index() -> None:
    assert DaliTarIndex().content(rows(("a", {"b c.jpg": (512, 9)}))) is None
    assert not list(index_files([DaliTarIndex()], "d.tar", rows(("a", {"b c.jpg": (512, 9)}))))


def test_a_shard_that_was_not_written_has_no_index() -> None:
    assert not list(index_files([DaliTarIndex()], "d-000000.tar", NO_ROWS))


def test_an_index_file_is_described_by_what_is_in_it() -> None:
    ((file, data),) = index_files([DaliTarIndex()], "d-000000.tar", rows(("a", {"x": (512, 1)})))
    assert (file.kind, file.name, file.bytes) == ("dali", "d-000000.idx", len(data))
    assert data == b"v1.2 1\nx 512 1 a.x\n"


@pytest.mark.parametrize("index", [DaliTarIndex(), DaliTFRecordIndex()])
def test_an_index_does_not_depend_on_how_its_rows_are_divided(index: ReaderIndex) -> None:
    many = batch(*((f"k{n}", {"a": (512 * n, n)}) for n in range(10)))
    parts = [many.slice(0, 3), many.slice(3, 1), many.slice(4)]
    ((file, data),) = index_files([index], "d", Spool.of(parts, ROWS))
    ((whole, wanted),) = index_files([index], "d", Spool.of([many], ROWS))
    assert (file, data) == (whole, wanted)
    assert data.count(b"\n") in (10, 11)


@pytest.mark.parametrize("index", [DaliTarIndex(), DaliTFRecordIndex()])
def test_an_index_is_made_in_pieces_that_do_not_grow_with_it(index: ReaderIndex) -> None:
    one = batch(*((f"k{n}", {"a": (512 * n, n)}) for n in range(500)))
    longest = []
    for count in (1, 8):
        pieces = index.content(Spool.of([one] * count, ROWS))
        assert pieces is not None
        longest.append(max(map(len, pieces)))
    assert longest[0] == longest[1]


def test_a_space_in_the_last_batch_counts_for_all() -> None:
    parts = [batch(("dog", {"jpg": (512, 9)})), batch(("my cat", {"jpg": (1536, 2)}))]
    assert text(Spool.of(parts, ROWS)) == b"v1.1 2\njpg 512 9\njpg 1536 2\n"
    parts = [batch(("a", {"jpg": (512, 9)})), batch(("b", {"b c.jpg": (1536, 2)}))]
    assert DaliTarIndex().content(Spool.of(parts, ROWS)) is None


def test_members_are_where_the_index_says() -> None:
    """The notation of offsets: of the data, not of the header."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = 5
        archive.addfile(member, io.BytesIO(b"hello"))
    with tarfile.open(fileobj=io.BytesIO(file.getvalue())) as archive:
        (offset,) = [member.offset_data for member in archive]
    found = text(rows(("a", {"txt": (offset, 5)})))
    (((_, at, size, _),),) = as_dali_reads(found)
    assert file.getvalue()[int(at) :][: int(size)] == b"hello"
