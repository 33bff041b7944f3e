"""Temporary files and folders: nothing is left of them, also not after their owner was killed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from larder.temporary import (
    QUIET_SECONDS,
    draft_name,
    hold,
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


def test_that_of_a_killed_owner_is_swept_and_that_of_a_living_one_is_not(tmp_path: Path) -> None:
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


def test_another_machine_s_goes_after_an_hour_of_silence_alone(tmp_path: Path) -> None:
    """Its lock may not reach here."""
    killed, left = owner(tmp_path)
    with killed:
        killed.kill()
    theirs = left.rename(left.with_name(foreign(left.name)))
    draft = tmp_path / foreign(draft_name().decode())
    draft.write_bytes(b"half")
    now_seconds = max(path.stat().st_ctime for path in (theirs, draft))
    for later_seconds, expected in (
        (0.0, [draft.name, theirs.name]),
        (QUIET_SECONDS / 2, [draft.name, theirs.name]),
        (QUIET_SECONDS + 1, []),
    ):
        sweep_drafts(os.fsencode(tmp_path), now_seconds + later_seconds)
        sweep_workshops(tmp_path, now_seconds + later_seconds)
        assert names(tmp_path) == expected


def test_what_is_locked_stays_however_old_it_is(tmp_path: Path) -> None:
    ours, theirs = tmp_path / draft_name().decode(), tmp_path / foreign(draft_name().decode())
    handles = [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL) for path in (ours, theirs)]
    assert all(map(hold, handles))
    with workshop(tmp_path) as folder:
        later_seconds = folder.stat().st_ctime + 10 * QUIET_SECONDS
        sweep_drafts(os.fsencode(tmp_path), later_seconds)
        sweep_workshops(tmp_path, later_seconds)
        assert names(tmp_path) == sorted([ours.name, theirs.name, folder.name])
    for handle in handles:
        os.close(handle)
    sweep_drafts(os.fsencode(tmp_path), later_seconds)
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
def test_what_we_did_not_make_is_left_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / name).write_bytes(b"x")
    (tmp_path / "folder" / name).mkdir(parents=True)
    (tmp_path / "folder" / name / "lock").write_bytes(b"")
    for place in ("file", "folder"):
        sweep_drafts(os.fsencode(tmp_path / place), 1e12)
        sweep_workshops(tmp_path / place, 1e12)
        assert names(tmp_path / place) == [name]


def test_a_draft_that_was_swept_before_it_was_locked_is_known_to_be_gone(tmp_path: Path) -> None:
    path = tmp_path / draft_name().decode()
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    sweep_drafts(os.fsencode(tmp_path), 0.0)
    assert not path.exists()
    assert not hold(handle)
    os.close(handle)


def test_a_folder_whose_maker_was_killed_before_its_lock_goes_too(tmp_path: Path) -> None:
    with workshop(tmp_path) as folder:
        name = folder.name[:-1] + "_"
    (tmp_path / name).mkdir()
    now_seconds = (tmp_path / name).stat().st_ctime
    sweep_workshops(tmp_path, now_seconds + 1)
    assert names(tmp_path) == [name]
    sweep_workshops(tmp_path, now_seconds + QUIET_SECONDS + 1)
    assert names(tmp_path) == []
