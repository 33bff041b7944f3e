"""Temporary files and folders: nothing remains of them, even if their owner was killed."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from larder.store.local.store import LocalStore
from larder.temporary import (
    QUIET_DRAFT_SECONDS,
    QUIET_FOLDER_SECONDS,
    draft_name,
    open_draft,
    sweep_drafts,
    sweep_workshops,
    workshop,
)

OWNER = """
import sys
from pathlib import Path
from larder.temporary import workshop
with workshop(Path(sys.argv[1])) as folder:
    (folder / "data").write_bytes(b"x" * 1000)
    print(folder, flush=True)
    sys.stdin.read()
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_nothing_is_left_at_the_end_or_after_an_error(tmp_path: Path) -> None:
    parent = tmp_path / "made" / "if needed"
    with workshop(parent) as folder:
        (folder / "data").write_bytes(b"x")
    with pytest.raises(KeyError), workshop(parent):
        raise KeyError
    assert list(parent.iterdir()) == []


def test_files_of_killed_owners_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    killed, left = owner(tmp_path)
    living, used = owner(tmp_path)
    with killed, living:
        killed.kill()
        killed.wait()
        assert left.exists()
        with workshop(tmp_path):
            assert not left.exists()
            assert (used / "data").exists()
        living.communicate("")
    assert list(tmp_path.iterdir()) == []


def foreign(name: str) -> str:
    """The name that it would have on another machine."""
    return re.sub(r"(draft|workshop)-[0-9a-f]{8}-", r"\1-00000000-", name)


def names(folder: Path) -> list[str]:
    return sorted(os.listdir(folder))


def test_another_machine_s_goes_after_long_silence_alone(tmp_path: Path) -> None:
    """Its lock may not reach here; and a run may only read from its folder for days."""
    killed, left = owner(tmp_path)
    with killed:
        killed.kill()
    theirs = left.rename(left.with_name(foreign(left.name)))
    draft = tmp_path / foreign(draft_name().decode())
    draft.write_bytes(b"half")
    now_seconds = max(path.stat().st_ctime for path in (theirs, draft))
    for later_seconds, expected in (
        (0.0, [draft.name, theirs.name]),
        (QUIET_DRAFT_SECONDS / 2, [draft.name, theirs.name]),
        (QUIET_DRAFT_SECONDS + 1, [theirs.name]),
        (6 * 86400.0, [theirs.name]),
        (QUIET_FOLDER_SECONDS + 1, []),
    ):
        sweep_drafts(os.fsencode(tmp_path), now_seconds + later_seconds)
        sweep_workshops(tmp_path, now_seconds + later_seconds)
        assert names(tmp_path) == expected


def test_locked_files_stay_however_old_they_are(tmp_path: Path) -> None:
    ours, ours_handle = open_draft(os.fsencode(tmp_path))
    path, theirs_handle = open_draft(os.fsencode(tmp_path))
    theirs = foreign(os.fsdecode(path))
    os.rename(path, theirs)
    with workshop(tmp_path) as folder:
        later_seconds = folder.stat().st_ctime + 10 * QUIET_FOLDER_SECONDS
        sweep_drafts(os.fsencode(tmp_path), later_seconds)
        sweep_workshops(tmp_path, later_seconds)
        kept = (os.fsdecode(ours), theirs, str(folder))
        assert names(tmp_path) == sorted(map(os.path.basename, kept))
    for handle in (ours_handle, theirs_handle):
        os.close(handle)
    sweep_drafts(os.fsencode(tmp_path), later_seconds)
    assert names(tmp_path) == []


@pytest.fixture
def no_lock_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The file system refuses the first lock that is asked for."""
    lock = fcntl.flock

    def refuse(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)


@pytest.mark.usefixtures("no_lock_at_first")
def test_a_draft_that_could_not_be_locked_is_left_alone(tmp_path: Path) -> None:
    writer = LocalStore(tmp_path).writer("a.tar")
    writer.write(b"x")
    (draft,) = tmp_path.iterdir()
    sweep_drafts(os.fsencode(tmp_path), draft.stat().st_ctime + QUIET_DRAFT_SECONDS / 2)
    writer.commit()
    assert names(tmp_path) == ["a.tar"]


@pytest.mark.usefixtures("no_lock_at_first")
def test_a_folder_that_could_not_be_locked_is_left_alone(tmp_path: Path) -> None:
    with workshop(tmp_path) as folder:
        (folder / "data").write_bytes(b"x")
        now_seconds = (folder / "data").stat().st_ctime
        sweep_workshops(tmp_path, now_seconds + QUIET_FOLDER_SECONDS / 2)
        assert names(folder) == ["data", "lock"]
    assert names(tmp_path) == []


@pytest.mark.usefixtures("no_lock_at_first")
def test_abandoned_files_without_locks_are_treated_like_another_machines(tmp_path: Path) -> None:
    path, handle = open_draft(os.fsencode(tmp_path))
    os.close(handle)
    now_seconds = os.stat(path).st_ctime
    sweep_drafts(os.fsencode(tmp_path), now_seconds)
    assert names(tmp_path) == [os.path.basename(os.fsdecode(path))]
    sweep_drafts(os.fsencode(tmp_path), now_seconds + QUIET_DRAFT_SECONDS + 1)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    [
        "data",
        "larder-data",
        ".larder-tmp-lock",
        ".larder-tmp-notes",
        ".larder-tmp-draft-0123456-1-0123456789abcdef",
        ".larder-tmp-workshop-",
    ],
)
def test_files_of_others_are_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / name).write_bytes(b"x")
    (tmp_path / "folder" / name).mkdir(parents=True)
    (tmp_path / "folder" / name / "lock").write_bytes(b"")
    for place in ("file", "folder"):
        sweep_drafts(os.fsencode(tmp_path / place), 1e12)
        sweep_workshops(tmp_path / place, 1e12)
        assert names(tmp_path / place) == [name]


@pytest.mark.parametrize("refused", [False, True])
def test_a_draft_that_is_swept_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: bool
) -> None:
    lock = fcntl.flock

    def sweep_first(handle: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        sweep_drafts(os.fsencode(tmp_path), 0.0)
        assert names(tmp_path) == []
        if refused:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))
        lock(handle, how)

    monkeypatch.setattr(fcntl, "flock", sweep_first)
    path, handle = open_draft(os.fsencode(tmp_path))
    assert names(tmp_path) == [os.path.basename(os.fsdecode(path))]
    assert os.path.samestat(os.stat(path), os.fstat(handle))
    os.close(handle)


@pytest.mark.parametrize("files", [[], ["data.mdb"], ["inner/data.mdb"]])
def test_an_unlocked_folder_is_removed_after_a_long_time(tmp_path: Path, files: list[str]) -> None:
    """Its maker was killed before it made the lock, or when it had removed it."""
    with workshop(tmp_path) as folder:
        name = folder.name[:-1] + "_"
    (tmp_path / name).mkdir()
    for file in files:
        (tmp_path / name / file).parent.mkdir(exist_ok=True)
        (tmp_path / name / file).write_bytes(b"x")
    now_seconds = max(path.stat().st_ctime for path in tmp_path.rglob("*"))
    sweep_workshops(tmp_path, now_seconds + QUIET_FOLDER_SECONDS / 2)
    assert names(tmp_path) == [name]
    sweep_workshops(tmp_path, now_seconds + QUIET_FOLDER_SECONDS + 1)
    assert names(tmp_path) == []
