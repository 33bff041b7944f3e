import hashlib
import inspect
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from larder.store.base import ObjectInfo, Readable, Reader, Store
from larder.store.delegate import DelegatingReader, DelegatingStore
from tests.support.memory import MemoryStore
from tests.support.stores import WRITES, Stop, Stopped, StoppingStore

INFO = ObjectInfo("a", 1, hashlib.md5(b"1").hexdigest(), 0)
CALLS: dict[str, Callable[[Store, Path], object]] = {
    "list": lambda store, path: list(store.list("a")),
    "region": lambda store, path: store.region(),
    "head": lambda store, path: store.head("a"),
    "open": lambda store, path: store.open("a").close(),
    "get": lambda store, path: store.get("a"),
    "put": lambda store, path: store.put("a", b"2"),
    "copy_from": lambda store, path: store.copy_from(store, INFO, "a"),
    "writer": lambda store, path: store.writer("a").abort(),
    "write": lambda store, path: store.writer("a").write(b"3"),
    "commit": lambda store, path: store.writer("a").commit(),
    "begin_upload": lambda store, path: store.begin_upload("a"),
    "abort_uploads": lambda store, path: store.abort_uploads(1.0),
    "upload": lambda store, path: store.upload("a", path),
    "delete": lambda store, path: store.delete("a"),
}


def methods(protocol: type) -> set[str]:
    """What a protocol asks for: methods and properties, none that are Python's own."""
    return {
        name
        for base in protocol.__mro__
        for name, value in vars(base).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property))
    }


class Noting(DelegatingStore):
    noted: set[str]

    def around(self, method: str, key: str, call: Any, **options: Any) -> Any:
        assert key == ("" if method in ("region", "abort_uploads") else "a")
        self.noted.add(method)
        return call(**options)


def test_a_wrapper_wraps_every_call(tmp_path):
    assert CALLS.keys() == methods(Store) - {"url", "features", "sync", "get_each"} | {
        "write",
        "commit",
    }
    assert methods(Reader) <= vars(DelegatingReader).keys()
    assert "sync" in vars(DelegatingStore)
    (tmp_path / "file").write_bytes(b"1")
    for name, call in CALLS.items():
        inner = MemoryStore(uuid.uuid4().hex)
        inner.put("a", b"1")
        store = Noting(inner)
        store.noted = set()
        call(store, tmp_path / "file")
        assert store.noted - {"writer"} == {"abort" if name == "writer" else name}
        assert (store.url, store.features) == (inner.url, inner.features)


@pytest.mark.parametrize("name", CALLS)
def test_every_write_and_nothing_else_stops(name, tmp_path):
    (tmp_path / "file").write_bytes(b"1")
    inner = MemoryStore(uuid.uuid4().hex)
    inner.put("a", b"1")
    store = StoppingStore(inner, Stop(after=1 if name in ("write", "commit") else 0))
    if name in WRITES:
        with pytest.raises(Stopped):
            CALLS[name](store, tmp_path / "file")
    else:
        CALLS[name](store, tmp_path / "file")
    assert inner.get("a") == b"1"
    assert CALLS.keys() - methods(Readable) == WRITES
