"""Drafts and workshops: what is left of them, and when it goes; locks, names, links."""

import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from larder import disk
from larder.disk import (
    DRAFT_ABANDONED_SECONDS,
    DRAFT_PREFIX,
    Folding,
    check_inside,
    check_names,
    draft,
    file_lock,
    folding_of,
    open_draft,
    remove_abandoned,
    removed_if_abandoned,
    workshop,
)
from larder.errors import ConfigError
from tests.support.errors import larder_error

OWNER = """
import sys
from pathlib import Path
from larder.disk import draft, workshop
folder = Path(sys.argv[1])
with workshop(folder) as made, draft(folder / "file") as file:
    (made / "data").write_bytes(b"x")
    print(made.name, file.path.name, flush=True)
    sys.stdin.read()
"""


def owner(parent: Path) -> tuple[subprocess.Popen[str], list[str]]:
    """A process with a workshop and a draft, and their names."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(parent)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    return process, process.stdout.readline().split()


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def sweep(folder: Path, after_seconds: float) -> set[str]:
    """What remains if temporary files are looked for so long after now."""
    remove_abandoned(os.fsencode(folder), folder.stat().st_mtime + after_seconds)
    return names(folder)


def age(*paths: Path) -> None:
    """Make files and folders, with all that is in them, as old as what is abandoned."""
    for path in paths:
        for each in (*path.rglob("*"), path):
            seconds = each.stat().st_mtime - DRAFT_ABANDONED_SECONDS - 60
            os.utime(each, (seconds, seconds))


def test_nothing_is_left_at_the_end_or_after_an_error(tmp_path):
    parent = tmp_path / "made" / "if needed"
    with workshop(parent) as folder:
        (folder / "data").write_bytes(b"x")
    with pytest.raises(KeyError), workshop(parent), draft(parent / "file"):
        raise KeyError
    assert names(parent) == set()


def test_a_draft_is_published_in_one_step(tmp_path):
    final = tmp_path / "new" / "a.mdb"
    with draft(final) as file:
        file.write(b"ab")
        file.write(memoryview(b"cd"))
        assert not final.exists()
        file.publish()
    assert final.read_bytes() == b"abcd"
    assert names(final.parent) == {"a.mdb"}


def test_the_error_of_a_draft_is_not_replaced_by_that_of_its_removal(tmp_path, monkeypatch):
    def refused(path, *rest):
        raise PermissionError

    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(KeyError), draft(tmp_path / "a"):
        raise KeyError


def test_a_file_of_a_killed_owner_goes_at_once_and_that_of_a_living_one_never(tmp_path):
    killed, _ = owner(tmp_path)
    living, used = owner(tmp_path)
    with killed, living:
        killed.kill()
        killed.wait()
        assert sweep(tmp_path, 0.0) == {*used}
        living.communicate("")


def test_what_is_left_from_elsewhere_goes_after_a_day(tmp_path, monkeypatch):
    """Or from before the machine was started again: the locks of others cannot be seen."""
    monkeypatch.setattr(disk, "prefix_here", lambda folder: DRAFT_PREFIX + "elsewhere")
    monkeypatch.setattr(disk, "is_on_network", lambda folder: True)
    killed, left = owner(tmp_path)
    living, used = owner(tmp_path)
    with killed, living:
        killed.kill()
        killed.wait()
        assert sweep(tmp_path, DRAFT_ABANDONED_SECONDS / 2) == {*left, *used}
        assert sweep(tmp_path, DRAFT_ABANDONED_SECONDS + 60) == {*used}
        living.communicate("")
    assert names(tmp_path) == set()


def test_a_folder_is_as_old_as_what_was_last_written_in_it(tmp_path):
    folder = tmp_path / ".larder-tmp-workshop-abc"
    (folder / "inner").mkdir(parents=True)
    age(folder)
    (folder / "inner" / "data").write_bytes(b"x")
    assert sweep(tmp_path, 0.0) == {folder.name}
    age(folder)
    assert sweep(tmp_path, 0.0) == set(), "its owner was killed before it made the lock"


@pytest.mark.parametrize(
    "name",
    [
        "data",
        "larder-data",
        ".larder-tmp-lock",
        ".larder-tmp-notes",
        ".larder-tmp-draft-0123456",
        ".larder-tmp-workshop-",
    ],
)
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / "file").mkdir()
    (tmp_path / "file" / name).write_bytes(b"x")
    (tmp_path / "folder" / name).mkdir(parents=True)
    assert sweep(tmp_path / "file", 1e12) == sweep(tmp_path / "folder", 1e12) == {name}


def test_a_draft_that_was_taken_for_an_abandoned_one_is_made_again(tmp_path, monkeypatch):
    """As it may be before it is locked."""
    locking, paths = disk._is_locked, []

    def swept(handle: int) -> bool:
        paths.append(*tmp_path.iterdir())
        if len(paths) == 1:
            paths[0].unlink()
        return locking(handle)

    monkeypatch.setattr(disk, "_is_locked", swept)
    path, handle = open_draft(os.fsencode(tmp_path))
    os.close(handle)
    assert paths == [paths[0], Path(os.fsdecode(path))]


@pytest.mark.parametrize("system", ["Linux", "one without /proc"])
def test_a_process_leaves_its_own_drafts_alone_without_locks(tmp_path, monkeypatch, system):
    real = Path.read_bytes

    def read_bytes(path: Path) -> bytes:
        if system != "Linux" and path.parts[1] == "proc":
            raise FileNotFoundError
        return real(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    drafts = [open_draft(os.fsencode(tmp_path), locked=False) for _ in range(2)]
    assert sweep(tmp_path, 0.0) == {Path(os.fsdecode(path)).name for path, _ in drafts}
    for _, handle in drafts:
        os.close(handle)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forked_processes_count_their_drafts_from_different_numbers(tmp_path):
    """A killed process leaves files, and the system may give its pid to a later one."""
    os.close(open_draft(os.fsencode(tmp_path))[1])
    for name in "ab":
        (tmp_path / name).mkdir()
        if not (child := os.fork()):
            open_draft(os.fsencode(tmp_path / name))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    left = [path.name for path in tmp_path.glob("?/*")]
    assert len({name[-10:] for name in left}) == 2


def is_locked(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_ends_with_its_owner_and_not_with_a_process_that_was_forked_meanwhile(tmp_path):
    """As workers are, while another thread of their parent holds it."""
    path = tmp_path / "lock"
    lock = file_lock(path)
    lock.__enter__()
    if not (leaving := os.fork()):
        lock.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(leaving, 0)
    assert is_locked(path)
    read, write = os.pipe()
    if not (waiting := os.fork()):
        os.read(read, 1)
        os._exit(0)
    lock.__exit__(None, None, None)
    try:
        assert not is_locked(path)
    finally:
        os.write(write, b"x")
        os.waitpid(waiting, 0)
        os.close(read)
        os.close(write)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_lock_ends_with_an_owner_that_is_killed_and_has_forked_meanwhile(tmp_path):
    path = tmp_path / "lock"
    (read, write), (began, begin) = os.pipe(), os.pipe()
    if not (owner := os.fork()):
        with file_lock(path):
            if not os.fork():
                os.write(begin, b"x")
                os.read(read, 1)
                os._exit(0)
            os.read(began, 1)
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(owner, 0)
    try:
        assert not is_locked(path)
    finally:
        os.write(write, b"x")
        for handle in (read, write, began, begin):
            os.close(handle)


def test_names_that_a_file_system_takes_for_one_are_refused(tmp_path, monkeypatch):
    """File systems that do so cannot be mounted wherever the tests run: what one does is faked."""
    names = ["Train", "val", "train"]
    folder = tmp_path / "not" / "made"
    check_names(folder, names)
    assert folding_of(folder) == Folding()
    assert not list(tmp_path.iterdir())
    monkeypatch.setattr(disk, "folding_of", lambda folder: Folding(case=True))
    check_names(folder, names[:2])
    with pytest.raises(ConfigError, match="'Train' and 'train'") as caught:
        check_names(folder, names)
    assert caught.value.code == "config.path"


def test_what_a_file_system_folds_is_tried_out(tmp_path, monkeypatch):
    exists = Path.exists
    folded = Folding(case=True)

    def exists_folded(path: Path) -> bool:
        here = path.parent.iterdir() if exists(path.parent) else ()
        return exists(path) or any(folded(one.name) == folded(path.name) for one in here)

    monkeypatch.setattr(Path, "exists", exists_folded)
    assert folding_of(tmp_path) == folded


@pytest.mark.parametrize("how", ["draft", "workshop"])
def test_abandoned_files_are_looked_for_once_where_something_is_written(tmp_path, monkeypatch, how):
    """Looking for each draft would make many take as long as their number squared."""
    monkeypatch.setattr(disk, "_searched", set())
    left = tmp_path / f".larder-tmp-draft-{'0' * 24}"
    for again in (False, True):
        left.write_bytes(b"x")
        age(left)
        with draft(tmp_path / "new") if how == "draft" else workshop(tmp_path):
            assert left.exists() == (again and how == "draft")


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


def test_a_disk_that_is_full_between_a_workshop_and_its_lock_leaves_nothing(tmp_path, monkeypatch):
    real = os.open

    def full(path: Any, *more: Any, **options: Any) -> int:
        if str(path).endswith("/lock"):
            raise OSError(28, "No space left on device")
        return real(path, *more, **options)

    monkeypatch.setattr(os, "open", full)
    with larder_error("store.full"), workshop(tmp_path / "parent"):
        pass
    assert os.listdir(tmp_path / "parent") == []


@pytest.fixture
def root(tmp_path, monkeypatch):
    root = tmp_path / "root"
    (root / "inside").mkdir(parents=True)
    (root / "o").symlink_to(tmp_path)
    (root / "in").symlink_to("inside")
    monkeypatch.chdir(root)
    return root


@pytest.mark.parametrize("folder", ["o", "o/long/name", "in/../../other"])
@pytest.mark.parametrize("name", ["", ".", "/"])
def test_a_link_that_leads_out_is_refused(folder, name, root):
    # "." is what pathlib leaves out of a path below it.
    folder, base = (folder, ".") if name == "." else (f"{root}/{folder}", f"{root}{name}")
    with pytest.raises(OSError, match="a link leads out"):
        check_inside(os.fsencode(folder), os.fsencode(base))


@pytest.mark.parametrize("base", [".", "/", "//"])
def test_folders_inside_are_not_refused(base, root):
    for folder in ("in/new", "inside/new", "."):
        folder = folder if base == "." else f"{root}/{folder}"
        check_inside(os.fsencode(folder), os.fsencode(base))
