"""A large file is on its way to the disk before its commit, or its sync, waits for the disk."""

import ctypes

import pytest

from larder import machine
from larder.store.local.store import LocalStore

MIB = 1 << 20


@pytest.mark.parametrize(
    ("sync", "linux", "ranges"),
    [(True, True, [(0, 8), (8, 8)]), (False, True, [(0, 8), (8, 8)]), (True, False, [])],
)
def test_the_disk_writes_a_large_file_before_its_commit(sync, linux, ranges, tmp_path, monkeypatch):
    started = []
    begin = machine._c_function("sync_file_range") or (lambda *_: 0)

    def noted(handle: int, offset: ctypes.c_int64, length: ctypes.c_int64, flags: int) -> None:
        started.append((offset.value // MIB, length.value // MIB))
        assert begin(handle, offset, length, flags) == 0

    monkeypatch.setattr(machine, "_c_function", lambda _: noted if linux else None)
    with LocalStore(tmp_path).writer("a", sync=sync) as writer:
        for _ in range(7):
            writer.write(bytes(3 * MIB))
        writer.commit()
    assert started == ranges
    assert (tmp_path / "a").read_bytes() == bytes(21 * MIB)
