"""A directory to build in: nothing is left of it, also not after its owner was killed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from larder.cache.scratch import workshop

OWNER = """
import sys
from pathlib import Path
from larder.cache.scratch import workshop
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
