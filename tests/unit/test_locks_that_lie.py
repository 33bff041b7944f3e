"""File systems whose locks keep nobody out: always granted, refused, or of one process only."""

import errno
import fcntl
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from required import missing

from larder import disk
from larder.disk import (
    draft,
    file_lock,
    locks_exclude,
    open_draft,
    open_shared,
    remove_abandoned,
    removed_if_abandoned,
    unused,
)

FORK = multiprocessing.get_context("fork")


def granted(handle: Any, operation: int) -> None:
    """As with NFS that is mounted without locks."""


def refused(number: int) -> Callable[[Any, int], None]:
    def flock(handle: Any, operation: int) -> None:
        raise OSError(number, os.strerror(number))

    return flock


LIARS = {
    "granted": granted,
    "EBADF": refused(errno.EBADF),
    "ENOLCK": refused(errno.ENOLCK),
    "ENOSYS": refused(errno.ENOSYS),
}


@pytest.fixture(params=LIARS)
def lying(request, monkeypatch):
    monkeypatch.setattr(fcntl, "flock", LIARS[request.param])


def in_a_process(target: Callable[..., object], *arguments: object) -> int | None:
    process = FORK.Process(target=target, args=arguments)
    process.start()
    process.join()
    return process.exitcode


def killed_while_it_writes(folder: Path) -> None:
    with draft(folder / "file"):
        os.kill(os.getpid(), signal.SIGKILL)


def swept(folder: Path) -> list[Path]:
    """What remains after another process has looked for what was abandoned."""
    assert in_a_process(remove_abandoned, os.fsencode(folder), folder.stat().st_mtime) == 0
    return list(folder.iterdir())


def test_what_the_locks_of_a_directory_keep_out_is_tried_once(tmp_path, monkeypatch):
    tried = []
    monkeypatch.setattr(
        disk, "_is_locked", lambda handle, of=disk._is_locked: tried.append(1) or of(handle)
    )
    assert locks_exclude(tmp_path)
    assert locks_exclude(tmp_path)
    assert len(tried) == 2, "two handles"
    assert not list(tmp_path.iterdir())


def test_locks_that_lie_are_found_out(lying, tmp_path):
    assert not locks_exclude(tmp_path)
    assert not locks_exclude(tmp_path / "missing")
    assert not list(tmp_path.iterdir())


def test_a_file_being_written_is_left_and_one_of_a_killed_process_goes(lying, tmp_path):
    assert in_a_process(killed_while_it_writes, tmp_path) == -signal.SIGKILL
    left = list(tmp_path.iterdir())
    assert len(left) == 1
    with draft(tmp_path / "file") as file:
        assert swept(tmp_path) == [file.path]
        assert not removed_if_abandoned(file.path)
        file.publish()
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_the_first_file_of_a_directory_is_not_taken_for_an_abandoned_one(lying, tmp_path):
    path, handle = open_draft(os.fsencode(tmp_path))
    os.close(handle)
    assert os.path.exists(path)


def test_a_lock_that_one_process_alone_sees_ends_no_other(tmp_path, monkeypatch):
    """The second handle of a process is refused, but that of another process is not."""
    with draft(tmp_path / "file") as file:
        monkeypatch.setattr(fcntl, "flock", granted)
        monkeypatch.setattr(disk, "locks_exclude", lambda folder: True)
        assert swept(tmp_path) == [file.path]


def test_what_others_write_goes_after_a_day(lying, tmp_path):
    """Their processes are not seen from here."""
    other = tmp_path / f".larder-tmp-draft-{'0' * 24}"
    other.write_bytes(b"x")
    assert swept(tmp_path) == [other]
    os.utime(other, (0, 0))
    assert swept(tmp_path) == []


def is_unused(path: Path) -> bool:
    with unused(path) as answer:
        return answer


def test_what_is_open_is_in_use_and_unused_after_a_day(lying, tmp_path):
    path = tmp_path / "copy"
    path.write_bytes(b"x")
    handle = open_shared(path)
    try:
        assert not is_unused(path)
    finally:
        os.close(handle)
    os.utime(path, (0, 0))
    assert is_unused(path)


def test_a_file_is_locked_for_its_removal_with_a_handle_that_may_write(tmp_path, monkeypatch):
    """As NFS gives no other exclusive lock; what is open counts as such, too."""
    flock = fcntl.flock

    def nfs(handle: int, operation: int) -> None:
        mode = fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE
        if operation & fcntl.LOCK_EX and mode == os.O_RDONLY:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", nfs)
    path = tmp_path / "copy"
    path.write_bytes(b"x")
    assert is_unused(path)
    handle = open_shared(path)
    try:
        assert not is_unused(path)
    finally:
        os.close(handle)


def test_another_user_waits_for_the_same_lock(tmp_path):
    if os.geteuid():
        missing("needs root")
    tmp_path.chmod(0o755)
    lock = tmp_path / "lock"
    with file_lock(lock):
        lock.chmod(0o644)

        def waits() -> None:
            os.chdir(tmp_path)  # the directories above are root's alone
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            handle = os.open("lock", os.O_RDONLY)
            with pytest.raises(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.close(handle)
            with pytest.raises(PermissionError), file_lock("new"):
                pass
            fcntl.flock = lambda handle, operation: None
            with file_lock("lock"):
                pass

        assert in_a_process(waits) == 0


def test_locks_of_a_local_disk_that_is_full_are_believed(tmp_path, monkeypatch):
    def full(folder: bytes) -> bool:
        raise OSError(errno.ENOSPC, "no space left")

    monkeypatch.setattr(disk, "_second_is_refused", full)
    assert locks_exclude(tmp_path)
    monkeypatch.setattr(disk, "is_on_network", lambda folder: True)
    assert not locks_exclude(tmp_path)
