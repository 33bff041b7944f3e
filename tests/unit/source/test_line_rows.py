"""Lines of an object as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from larder.manifest.files import read_manifest
from larder.source.expand import line_rows
from larder.source.expand.containers import INDEX, ContainerWriter, container_writer
from larder.source.expand.line_rows import index_lines
from larder.source.expand.row_values import Named
from larder.store.memory import MemoryStore


def index(store: MemoryStore, path: Path, sizes: list[int]) -> bytes:
    """The index of ``lines.txt``; with the number of rows that were added at a time."""
    info = store.head("lines.txt")
    told = sizes.append
    with container_writer(None, "x", path) as writer:
        assert isinstance(writer, ContainerWriter)
        index_lines(store, info, writer, is_json=False, named=Named(None, None), told=told)
    return path.read_bytes()


def test_short_lines_are_dealt_with_some_thousands_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of an object may have a million of them."""
    store = MemoryStore("line-rows")
    store.put("lines.txt", b"".join(b"%d\n" % (n % 7) if n % 5 else b"\r\n" for n in range(20_000)))
    found, sizes = list[bytes](), list[int]()
    found.append(index(store, tmp_path / "pieces", sizes))
    assert sum(sizes) == 16_000
    assert max(sizes) <= 4_096
    monkeypatch.setattr(line_rows, "_MOST_LINES", 10**9)
    found.append(index(store, tmp_path / "whole", []))
    assert found[0] == found[1]
    names = [
        name
        for batch in read_manifest(tmp_path / "pieces", INDEX)
        for name in batch.column("name").to_pylist()
    ]
    assert len(set(names)) == 16_000
    assert names == sorted(names)
    assert all(int(name.partition(".")[0]) % 5 for name in names)
