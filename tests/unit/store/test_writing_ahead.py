"""A large file is on its way to the disk before its commit waits for the disk."""

import pytest

from larder.machine import start_writing
from larder.store.local import write
from larder.store.local.store import LocalStore

MIB = 1 << 20


@pytest.mark.parametrize(("sync", "ranges"), [(True, [(0, 8), (8, 8)]), (False, [])])
def test_the_disk_writes_a_large_file_before_its_commit(sync, ranges, tmp_path, monkeypatch):
    started = []

    def noted(handle: int, *place: int) -> None:
        started.append(tuple(number // MIB for number in place))
        start_writing(handle, *place)

    monkeypatch.setattr(write, "start_writing", noted)
    with LocalStore(tmp_path).writer("a", sync=sync) as writer:
        for _ in range(7):
            writer.write(bytes(3 * MIB))
        writer.commit()
    assert started == ranges
    assert (tmp_path / "a").read_bytes() == bytes(21 * MIB)
