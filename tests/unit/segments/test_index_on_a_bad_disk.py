"""A disk that cannot be read while an index is made is named, in one line."""

import errno
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from larder.segments import index_writer
from larder.segments.index_writer import IndexWriter
from larder.shards.index_rows import IndexRows
from tests.support.errors import larder_error


def broken(*_: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


@pytest.mark.parametrize("name", ["rows.npz", "rows.npy", "parts.npy", "keys.npy"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch, name):
    rows = IndexRows()
    rows.add(("a", 0, 1_024, None), [("jpg", "a.jpg", "e", 512, 7, 11)])
    if name == "rows.npz":
        monkeypatch.setattr(index_writer, "sha256_file", broken)
    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        file = real(path, mode, *rest, **options)
        if (path.name, mode) != (name, "rb"):
            return file
        return closing(SimpleNamespace(seek=broken, read=broken, close=file.close))

    with IndexWriter(tmp_path) as writer:
        for batch in rows.finish().read():
            writer.append("d-train-000000.tar", batch)
        monkeypatch.setattr(Path, "open", opened)
        with larder_error("config.path") as caught:
            writer.finish()
    assert caught.value.where == str(tmp_path / name)
