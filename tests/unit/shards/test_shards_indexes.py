import re

import pyarrow as pa
import pytest

from larder.manifest.spool import Spool
from larder.shards.formats.format_interface import index_files
from larder.shards.formats.tfrecord.format import DaliTFRecordIndex
from larder.shards.formats.webdataset import DaliTarIndex
from larder.shards.index_rows import IndexRows
from larder.shards.model import ROWS


def rows(*samples: tuple[str, dict[str, tuple[int, int]]]) -> Spool:
    return Spool.of([batch(*samples)], ROWS)


def text(found: Spool) -> bytes:
    """The index of these rows."""
    pieces = DaliTarIndex().content(found)
    return b"".join(pieces)


def batch(*samples: tuple[str, dict[str, tuple[int, int]]]) -> pa.RecordBatch:
    found = []
    for key, parts in samples:
        places = [
            {"ext": ext, "offset": offset, "length": length, "crc32c": 0}
            for ext, (offset, length) in parts.items()
        ]
        found.append({"key": key, "offset": 0, "length": 0, "parts": places})
    return pa.RecordBatch.from_pylist(found, schema=ROWS)


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


def test_dali_gets_a_line_for_each_sample():
    first = ("a/1", {"cls": (512, 1), "jpg": (1536, 700)})
    found = text(rows(first, ("a/é", {"seg.png": (4096, 0)})))
    lines = ["v1.2 2", "cls 512 1 a/1.cls jpg 1536 700 a/1.jpg", "seg.png 4096 0 a/é.seg.png", ""]
    assert found == "\n".join(lines).encode()
    assert as_dali_reads(found)[1] == [("seg.png", "4096", "0", "a/é.seg.png")]


@pytest.mark.parametrize("together", [True, False])
def test_names_with_a_space_are_left_out_and_extensions_with_one_have_no_index(together):
    """Also if only the last rows have one."""

    def divided(*samples: tuple[str, dict[str, tuple[int, int]]]) -> Spool:
        return rows(*samples) if together else Spool.of(map(batch, samples), ROWS)

    found = text(divided(("dog", {"jpg": (512, 9)}), ("my cat", {"jpg": (1536, 2)})))
    assert found == b"v1.1 2\njpg 512 9\njpg 1536 2\n"
    assert as_dali_reads(found) == [[("jpg", "512", "9")], [("jpg", "1536", "2")]]
    spaced = divided(("a", {"jpg": (512, 9)}), ("b", {"b c.jpg": (1536, 2)}))
    assert not list(index_files([DaliTarIndex()], "d.tar", spaced))


@pytest.mark.parametrize("index", [DaliTarIndex(), DaliTFRecordIndex()])
def test_an_index_does_not_depend_on_how_its_rows_are_divided(index):
    many = batch(*((f"k{n}", {"a": (512 * n, n)}) for n in range(10)))
    parts = [many.slice(0, 3), many.slice(3, 1), many.slice(4)]
    ((file, data),) = index_files([index], "d", Spool.of(parts, ROWS))
    ((whole, wanted),) = index_files([index], "d", Spool.of([many], ROWS))
    assert (file, data) == (whole, wanted)
    assert len([*index.content(Spool.of(parts, ROWS))]) >= len(parts), "it is made in pieces"
    assert data.count(b"\n") in (10, 11)


def test_rows_of_a_shard_do_not_stay_in_memory():
    rows = IndexRows()
    for number in range(5_000):
        rows.add((f"{number}", number, 1, None), [("jpg", "k", "e", number, 1, 1)])
    assert [found.num_rows for found in rows.finish().read()] == [2_048, 2_048, 904]
