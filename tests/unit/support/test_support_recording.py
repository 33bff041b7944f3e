from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from larder.errors import NotFoundError
from larder.store.memory import MemoryStore, forget
from tests.support.recording import RecordedCall, RecordingStore


def test_every_call_is_noted(tmp_path: Path) -> None:
    name = str(uuid.uuid4())
    store = RecordingStore(MemoryStore(name))
    store.put("a", b"12345")
    store.forget()

    store.head("a")
    store.get("a", length=2)
    store.open("a", offset=1).close()
    list(store.list("p"))
    with pytest.raises(NotFoundError):
        store.get("none")
    assert store.writes == ()

    store.put("b", b"1")
    with store.writer("c") as writer:
        writer.write(b"123")
        writer.commit()
    store.writer("d").abort()
    (tmp_path / "f").write_bytes(b"12")
    store.upload("e", tmp_path / "f")
    store.delete("e")
    assert store.calls == (
        RecordedCall("head", "a"),
        RecordedCall("get", "a", 2),
        RecordedCall("open", "a", 4),
        RecordedCall("list", "p"),
        RecordedCall("get", "none"),
        RecordedCall("put", "b", 1),
        RecordedCall("writer", "c"),
        RecordedCall("commit", "c", 3),
        RecordedCall("writer", "d"),
        RecordedCall("upload", "e", 2),
        RecordedCall("delete", "e"),
    )
    assert store.writes == store.calls[5:]
    assert store.count("get") == 2
    assert store.moved_bytes("get") == 2
    forget(name)
    assert list(MemoryStore(name).list()) == []
