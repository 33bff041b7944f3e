"""Lines of an object as rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from larder.manifest.files import read_manifest
from larder.source.expand import line_rows
from larder.source.expand.containers import INDEX, Indexes
from larder.source.expand.line_rows import index_lines
from larder.source.expand.row_values import Named
from larder.store.memory import MemoryStore


def index(store: MemoryStore, path: Path) -> bytes:
    """The index of ``lines.txt``."""
    info = store.head("lines.txt")
    with Indexes(store, plan_only=True).writer("x", path) as writer:
        index_lines(store, info, writer, is_json=False, named=Named(None, None))
    return path.read_bytes()


def test_lines_are_dealt_with_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A piece of an object may have a million of them."""
    store = MemoryStore("line-rows")
    store.put("lines.txt", b"".join(b"%d\n" % (n % 7) if n % 5 else b"\r\n" for n in range(20_000)))
    whole = index(store, tmp_path / "pieces")
    monkeypatch.setattr(line_rows, "_MOST_LINES", 999)
    assert index(store, tmp_path / "again") == whole
    names = [
        name
        for batch in read_manifest(tmp_path / "pieces", INDEX)
        for name in batch.column("name").to_pylist()
    ]
    assert len(set(names)) == 16_000
    assert names == sorted(names)
    assert all(int(name.partition(".")[0]) % 5 for name in names)
