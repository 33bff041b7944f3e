import errno
import fcntl
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from required import as_root

from larder.disk import TEMPORARY_PREFIX
from larder.errors import (
    PreconditionError,
)
from larder.store.local.store import LocalStore
from larder.store.retry import RetryPolicy, RetryStore
from tests.support.errors import code_of, error_of, larder_error
from tests.support.locks import ToldLock
from tests.support.processes import wait_until
from tests.support.stores import keys_of


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


def failing(code: int) -> Callable[..., object]:
    def fail(*_arguments: object, **_more: object) -> object:
        raise OSError(code, os.strerror(code))

    return fail


def test_the_first_write_makes_the_root(tmp_path):
    store = LocalStore(tmp_path / "a" / "b")
    assert code_of(keys_of, store) == "store.missing"
    store.put("c/d", b"1")
    assert (tmp_path / "a/b/c/d").read_bytes() == b"1"
    store.delete("c/d")
    assert keys_of(store) == []  # the root stays, what was emptied below it does not
    assert list((tmp_path / "a" / "b").iterdir()) == []
    (tmp_path / "a/b/file").write_bytes(b"")
    assert code_of(LocalStore, tmp_path / "a/b/file/c") == "config.path"


def test_only_regular_files_are_objects(root):
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    (root / "file").write_bytes(b"1")
    (root / ".larder-tmp-123-abc").write_bytes(b"half")
    (root / "folder/loop").symlink_to(root)
    found: list[tuple[bytes, str]] = []
    store = LocalStore(root, unlisted=lambda path, error: found.append((path, error.message)))
    assert keys_of(store) == keys_of(LocalStore(root)) == ["file"]
    assert found == [
        (b"folder/loop/", "a link to a directory that contains it"),
        (b"pipe", "neither a file nor a directory"),
    ]
    for key in ("pipe", "folder"):
        assert code_of(store.head, key) == code_of(store.get, key) == "object.missing"
    store.delete("folder")
    assert (root / "folder").is_dir()


def test_links_are_followed_but_not_in_circles(root, tmp_path):
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "x").write_bytes(b"x")
    (root / "a").mkdir()
    (root / "a" / "file").write_bytes(b"1")
    (root / "a" / "up").symlink_to("..")
    (root / "b").symlink_to(tmp_path / "outside")
    (root / "c").symlink_to("a/file")
    store = LocalStore(root)
    assert keys_of(store) == ["a/file", "b/x", "c"]
    assert keys_of(store, "a/up/a/") == []
    assert store.get("c") == b"1"


def test_nothing_is_written_or_deleted_through_a_link_that_leads_out(root, tmp_path):
    """The directory itself may be a link, and a link may lead to another place in it."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x").write_bytes(b"theirs")
    (root / "inside").mkdir()
    (root / "here").symlink_to("inside")
    (root / "out").symlink_to(outside)
    (tmp_path / "link").symlink_to(root)
    store = LocalStore(tmp_path / "link")
    store.put("here/y", b"1")
    assert (root / "inside/y").read_bytes() == b"1"
    for key in ("out/x", "out/new/y"):
        for call in (
            lambda key: store.put(key, b"2"),
            lambda key: store.put(key, b"2", if_absent=True),
            lambda key: store.upload(key, root / "inside/y"),
            store.delete,
        ):
            assert code_of(call, key) == "object.bad_key"
    store.put("moved/z", b"1")
    (root / "moved").rename(tmp_path / "moved")
    (root / "moved").symlink_to(tmp_path / "moved")
    assert code_of(store.put, "moved/z", b"2") == "object.bad_key", "it was a folder before"
    assert (tmp_path / "moved/z").read_bytes() == b"1"
    (root / f"{TEMPORARY_PREFIX}lock").symlink_to(outside / "lock")
    assert code_of(lambda key: store.put(key, b"2", if_match="0"), "z") == "object.bad_key"
    assert [path.read_bytes() for path in outside.iterdir()] == [b"theirs"]


@pytest.mark.parametrize(
    ("name", "target", "code"),
    [
        (b"dangling", "nowhere", "object.unreadable"),
        (b"dangling", "dangling", "object.unreadable"),
        (b"caf\xe9", "/", "object.bad_key"),
    ],
)
def test_what_cannot_be_listed_is_reported(root, name, target, code):
    os.symlink(target, os.fsencode(root) + b"/" + name)
    error = error_of(keys_of, LocalStore(root))
    assert error.code == code
    assert str(name)[2:-1] in str(error)


@pytest.mark.parametrize(
    "key",
    ["", "/", "/a", "a/", "a//b", ".", "..", "a/..", "../a", "a\0b", ".larder-tmp-x", "\udce9"],
)
def test_keys_that_a_path_cannot_have(root, key):
    store = LocalStore(root)
    for call in (store.head, store.get, store.open, store.writer, store.delete):
        assert code_of(call, key) == "object.bad_key"


def test_a_prefix_does_not_lead_out_of_the_root(root, tmp_path):
    (tmp_path / "secret").write_bytes(b"")
    (root / "a").write_bytes(b"")
    store = LocalStore(root)
    assert keys_of(store, "../") == keys_of(store, "..") == keys_of(store, "/") == []


def test_a_place_where_nothing_can_be_written_is_named():
    with larder_error("store.refused", "file:///proc/x/") as caught:
        LocalStore("/proc/x").put("a/b", b"1")
    assert caught.value.hint == "choose another directory"


def test_a_link_to_nowhere_in_the_way_is_named(root):
    (root / "a").symlink_to(root / "nowhere")
    with larder_error("store.refused", f"file://{root}/a/b") as caught:
        LocalStore(root).put("a/b", b"1")
    assert caught.value.hint == ""


def test_a_file_where_a_directory_would_be(root):
    store = LocalStore(root)
    store.put("a", b"1")
    for key in ("a/b", "a/b/c"):
        assert code_of(store.put, key, b"2") == "object.bad_key"
    store.put("d/e", b"1")
    for absent in (False, True):
        assert code_of(store.put, "d", b"2", if_absent=absent) == "object.bad_key"
    assert keys_of(store) == ["a", "d/e"]


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, "store.full"),
        (errno.EDQUOT, "store.full"),
        (errno.ENFILE, "run.limit"),
        (errno.EIO, "store.refused"),
        (errno.EROFS, "object.unreadable"),
        (errno.ESTALE, "store.unavailable"),
    ],
)
@pytest.mark.parametrize("call", ["write", "fsync", "replace"])
def test_a_failed_write_leaves_nothing(root, monkeypatch, call, number, code):
    store = LocalStore(root)
    store.put("k", b"old")
    monkeypatch.setattr(os, call, failing(number))
    assert code_of(store.put, "k", b"new") == code
    monkeypatch.undo()
    assert [path.name for path in root.iterdir()] == ["k"]
    assert store.get("k") == b"old"


@pytest.fixture
def open_root() -> Iterator[Path]:
    """A directory that another user reaches: pytest closes its own whenever a run of it starts."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        root.chmod(0o755)
        yield root
        root.chmod(0o755)


def test_permissions(open_root):
    root = open_root
    store = LocalStore(root)
    store.put("open", b"1")
    store.put("shut", b"1")
    (root / "shut").chmod(0)
    script = f"""
import os
from larder.errors import LarderError
from larder.store.local.store import LocalStore
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 0)
store = LocalStore({str(root)!r})
def code(call):
    try: return call()
    except LarderError as error: return error.code
print(code(lambda: store.get("shut")), code(lambda: store.put("new", b"")), store.get("open"))
os.seteuid(0); os.chmod({str(root)!r}, 0); os.setresuid(65534, 65534, 0)
print(code(lambda: list(store.list())), code(lambda: store.get("open")))
"""
    said = subprocess.check_output([*as_root(), sys.executable, "-c", script], text=True)
    assert said.splitlines() == [
        "object.unreadable object.unreadable b'1'",
        "store.denied store.denied",
    ]


@pytest.mark.parametrize(
    ("now", "code"), [(b"123456", "object.changed"), (b"12", "object.truncated")]
)
def test_a_file_that_grows_or_shrinks_while_it_is_read(root, now, code):
    store = LocalStore(root)
    store.put("k", b"12345")
    with store.open("k") as reader:
        (root / "k").write_bytes(now)
        assert code_of(list, reader) == code


@pytest.mark.parametrize("change", [b"", b"6", b"67"])
def test_a_file_that_changes_while_several_are_read(root, monkeypatch, change):
    store = LocalStore(root)
    objects = [(key, 5, store.put(key, b"12345").etag) for key in ("j", "k")]
    pread = os.pread

    def slow_pread(handle: int, length: int, offset: int) -> bytes:
        data = pread(handle, length, offset)
        (root / "k").write_bytes(b"1234" + change)
        return data

    monkeypatch.setattr(os, "pread", slow_pread)
    with pytest.raises(PreconditionError) as caught:
        list(store.get_each(objects))
    assert (caught.value.code, caught.value.where) == ("object.changed", f"{store.url}k")


def test_a_file_that_is_replaced_is_read_as_it_was(root):
    store = LocalStore(root)
    store.put("k", bytes(3_000_000))
    with store.open("k") as reader:
        store.put("k", b"new")
        assert b"".join(reader) == bytes(3_000_000)


def test_etags_differ_even_within_one_tick(root):
    store = LocalStore(root)
    assert len({store.put("k", b"%3d" % n).etag for n in range(200)}) == 200


def test_a_parent_deleted_while_its_folder_is_made_is_made_again(root, monkeypatch):
    made: list[bytes] = []
    mkdir = os.mkdir

    def deleted_once(path: bytes, mode: int = 0o777) -> None:
        mkdir(path, mode)
        made.append(path)
        if len(made) == 1:  # the parent, which a delete elsewhere finds empty
            os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", deleted_once)
    store = LocalStore(root)
    store.put("a/b/1", b"1")
    assert store.get("a/b/1") == b"1"
    assert len(made) > 2


@pytest.mark.parametrize("system", ["one that has them", "one that has none"])
def test_an_upload_without_fast_copies(root, tmp_path, monkeypatch, system):
    (tmp_path / "source").write_bytes(b"12345" * 1000)
    if system == "one that has none":  # macOS
        monkeypatch.delattr(os, "copy_file_range", raising=False)
    else:
        refuse = failing(errno.EXDEV)
        monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    store = LocalStore(root)
    assert store.upload("k", tmp_path / "source").size_bytes == 5000
    assert store.get("k") == b"12345" * 1000


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EINVAL, errno.EIO])
def test_a_file_system_that_refuses_locks_can_be_written(root, monkeypatch, number):
    """Without hard links, too; and conditions are still compared."""
    monkeypatch.setattr(fcntl, "flock", failing(number))
    store = LocalStore(root)
    first = store.put("tags/latest", b"1", if_absent=True)
    second = store.put("tags/latest", b"2", if_match=first.etag)
    assert code_of(store.put, "tags/latest", b"3", if_match=first.etag) == "object.changed"
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    store.put("tags/other", b"1", if_absent=True)
    assert code_of(store.put, "tags/latest", b"3", if_absent=True) == "object.exists"
    assert store.head("tags/latest") == second
    assert [path.name for path in root.rglob("*draft*")] == []


def test_what_cannot_be_listed_can_be_left_out(root):
    store = LocalStore(root)
    for key in ("a/1", "b/x/2", "b/y/3", "c"):
        store.put(key, b"1")
    (root / "b/dangling").symlink_to("nowhere")
    raw = os.fsencode(root)
    Path(os.fsdecode(raw + b"/a/caf\xe9")).write_bytes(b"")
    Path(os.fsdecode(raw + b"/b/\xff")).mkdir()
    Path(os.fsdecode(raw + b"/b/\xff/4")).write_bytes(b"")
    found: list[tuple[bytes, str]] = []
    tolerant = LocalStore(root, unlisted=lambda path, error: found.append((path, error.code)))
    assert keys_of(tolerant) == ["a/1", "b/x/2", "b/y/3", "c"]
    assert found == [
        (b"a/caf\xe9", "object.bad_key"),
        (b"b/dangling", "object.unreadable"),
        (b"b/\xff/", "object.bad_key"),
    ]
    found.clear()
    assert keys_of(tolerant, "b/") == ["b/x/2", "b/y/3"]
    assert [path for path, _ in found] == [b"b/dangling", b"b/\xff/"]
    missing = LocalStore(root / "missing", unlisted=lambda path, error: None)
    assert code_of(keys_of, missing) == "store.missing"


def inodes(*paths: Path) -> set[int]:
    return {path.stat().st_ino for path in paths}


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The inodes of what is synced."""
    found: set[int] = set()
    fsync = os.fsync

    def noted(handle: int) -> None:
        fsync(handle)
        found.add(os.fstat(handle).st_ino)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_sync_is_of_every_file_and_its_directory(root, synced):
    store = LocalStore(root)
    for n in range(30):
        store.put(f"{n % 3}/{n}", b"x", sync=False)
    files = [path for path in root.rglob("*") if path.is_file()]
    assert synced.isdisjoint(inodes(*files))
    LocalStore(root).sync()
    assert synced >= inodes(*files, *(root / str(n) for n in range(3)))
    synced.clear()
    store.sync()
    assert synced == set()


def test_a_file_whose_draft_is_removed_by_another_process_is_written_again(root, monkeypatch):
    """Only a lock keeps the draft from processes that do not see its owner."""
    store, replace, drafts = LocalStore(root), os.replace, []

    def removed_once(draft: bytes, path: bytes) -> None:
        drafts.append(draft)
        if len(drafts) == 1:
            os.unlink(draft)
        replace(draft, path)

    store.put("k", b"old")
    monkeypatch.setattr(os, "replace", removed_once)
    assert code_of(lambda: store.put("k", b"new", sync=False)) == "store.unavailable"
    assert store.get("k") == b"old"
    drafts.clear()
    RetryStore(store, RetryPolicy(sleep=lambda seconds: None)).put("k", b"new", sync=False)
    assert len(set(drafts)) == 2
    assert [path.name for path in root.iterdir()] == ["k"]
    assert store.get("k") == b"new"


@pytest.mark.parametrize("sync", [True, False])
def test_a_name_that_the_file_system_refuses_is_not_written_again(root, monkeypatch, sync):
    """Linux says of a name with a colon on an SMB share that it does not exist."""

    def refused(draft: bytes, path: bytes) -> None:
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT), draft, None, path)

    monkeypatch.setattr(os, "replace", refused)
    assert code_of(lambda: LocalStore(root).put("a:b", b"1", sync=sync)) == "store.refused"
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("sync", [True, False])
def test_only_what_cannot_be_written_again_is_locked(root, monkeypatch, sync):
    locked: list[int] = []
    monkeypatch.setattr(fcntl, "flock", lambda handle, operation: locked.append(handle))
    LocalStore(root).put("k", b"1", sync=sync)
    assert len(locked) == sync
    with LocalStore(root).writer("k", sync=sync) as writer:
        assert len(locked) == sync + 1
        writer.write(b"2")
        writer.commit()


def test_a_sync_waits_for_what_another_thread_is_syncing(root, monkeypatch):
    """Or the receipt of its batch would be durable before the file is."""
    store = LocalStore(root)
    store.put("a", b"x", sync=False)
    syncing = ToldLock()
    monkeypatch.setattr(store._unsynced, "_syncing", syncing)
    other = threading.Thread(target=store.sync)
    early: list[bool] = []

    def slow(handle: int) -> None:
        if not early:
            other.start()
            wait_until(lambda: syncing.waited_for.is_set() or not other.is_alive())
            early.append(not other.is_alive())

    monkeypatch.setattr(os, "fsync", slow)
    store.sync()
    other.join()
    assert early == [False]


def test_what_could_not_be_synced_is_not_taken_for_durable_later(root, monkeypatch):
    """The system tells of lost bytes only once."""
    store = LocalStore(root)
    store.put("a", b"x", sync=False)
    monkeypatch.setattr(os, "fsync", failing(errno.EIO))
    for _ in range(2):
        assert code_of(store.sync) == "store.refused"
        monkeypatch.undo()
