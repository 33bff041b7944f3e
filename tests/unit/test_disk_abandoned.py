"""Files of killed processes, and when it is certain that these have ended."""

import fcntl
import os

import pytest

from larder import disk
from larder.disk import open_draft, remove_abandoned, removed_if_abandoned, workshop


@pytest.mark.parametrize("is_remote", [False, True])
def test_a_draft_that_is_older_than_the_process_of_its_number_is_abandoned(
    is_remote, tmp_path, monkeypatch
):
    """A network file system has the time of another machine."""
    monkeypatch.setattr(disk, "is_on_network", lambda folder: is_remote)
    name, handle = open_draft(os.fsencode(tmp_path))
    (path,) = tmp_path.iterdir()
    try:
        os.utime(path, (0, 0))
        assert not removed_if_abandoned(path), "it is locked"
        fcntl.flock(handle, fcntl.LOCK_UN)
        assert removed_if_abandoned(path) != is_remote
    finally:
        os.close(handle)
    assert os.path.exists(name) == is_remote


def test_a_workshop_that_is_taken_for_an_abandoned_one_is_made_again(tmp_path, monkeypatch):
    """A lock exists a moment before it is locked."""
    taken = []

    def flock(handle: int, operation: int, real: object = fcntl.flock) -> None:
        if not taken:
            taken.extend(tmp_path.iterdir())
            monkeypatch.setattr(fcntl, "flock", real)
            remove_abandoned(os.fsencode(tmp_path), tmp_path.stat().st_mtime)
        fcntl.flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with workshop(tmp_path) as folder:
        assert taken
        assert not taken[0].exists()
        assert [*tmp_path.iterdir()] == [folder]


def test_a_link_in_the_place_of_a_workshop_leads_to_nothing_that_is_removed(tmp_path):
    folder = tmp_path / "of a user"
    folder.mkdir()
    (folder / "lock").touch()
    link = tmp_path / ".larder-tmp-workshop-abc"
    link.symlink_to(folder)
    remove_abandoned(os.fsencode(tmp_path), tmp_path.stat().st_mtime)
    assert (folder / "lock").exists()


def test_nothing_is_tried_out_in_the_workshop_of_a_living_process(tmp_path, monkeypatch):
    with workshop(tmp_path) as folder:
        monkeypatch.setattr(disk, "locks_exclude", lambda folder: pytest.fail("it writes there"))
        remove_abandoned(os.fsencode(tmp_path), tmp_path.stat().st_mtime)
        assert folder.exists()
