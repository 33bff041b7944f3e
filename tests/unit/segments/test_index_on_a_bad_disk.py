"""A disk that cannot be read while an index is made is named, in one line."""

import errno
from pathlib import Path
from typing import Any

import pytest

from larder.errors import ConfigError
from larder.segments import index_writer
from larder.segments.index_writer import IndexWriter
from larder.shards.index_rows import IndexRows


@pytest.fixture
def written(tmp_path):
    rows = IndexRows()
    rows.add(("a", 0, 1_024, None), [("jpg", "a.jpg", "e", 512, 7, 11)])
    with IndexWriter(tmp_path) as writer:
        for batch in rows.finish().read():
            writer.append("d-train-000000.tar", batch)
        yield writer


def _broken(*_: Any) -> Any:
    raise OSError(errno.EIO, "Input/output error")


def test_the_digest_of_the_index_cannot_be_read(written, monkeypatch):
    monkeypatch.setattr(index_writer, "sha256_file", _broken)
    with pytest.raises(ConfigError, match="cannot be read: Input/output error") as caught:
        written.finish()
    assert caught.value.code == "config.path"
    assert caught.value.where.endswith("rows.npz")


@pytest.mark.parametrize("name", ["rows", "parts", "keys"])
def test_the_items_of_a_block_cannot_be_read(written, monkeypatch, name, tmp_path):
    class Broken:
        def __init__(self, file: Any) -> None:
            self._file = file

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        seek = read = _broken

    real = Path.open

    def opened(path: Path, mode: str = "r", *rest: Any, **options: Any) -> Any:
        file = real(path, mode, *rest, **options)
        return Broken(file) if (path.name, mode) == (f"{name}.npy", "rb") else file

    monkeypatch.setattr(Path, "open", opened)
    with pytest.raises(ConfigError) as caught:
        written.finish()
    assert caught.value.code == "config.path"
    assert caught.value.where == str(tmp_path / f"{name}.npy")
