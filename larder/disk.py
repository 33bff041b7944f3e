"""Files on a local disk: writes in one step, locks, checks of free space, and errors.

A file is written under a temporary name beside its final name, synced and renamed, so it is
complete or absent, even after a power cut. The writer holds a lock on the file (flock), unless it
can write the file again; the temporary name identifies the process and its machine. The next write
to a directory removes temporary files of killed processes:

- at once, if the process ran on this machine and has ended; or if no process has locked the file,
  on a local file system where a lock was seen to keep a second handle out;
- otherwise, after a day without modification by the file system's own clock, if the file is not
  locked: the locks of a network file system may not hold across machines.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import itertools
import os
import re
import resource
import secrets
import shutil
import stat
import tempfile
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from larder.errors import ConfigError, FatalError, LarderError, StoreError
from larder.units import format_bytes

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""The error numbers that mean that there is no space for a file."""

TEMPORARY_PREFIX = ".larder-tmp-"
"""Prefix of Larder's own names: files being written, and locks. Listings do not show them."""

DRAFT_ABANDONED_SECONDS = 86400.0
"""Time without modification after which an unlocked temporary file is removed, if its process is
not visible from here."""

DRAFT_PREFIX = f"{TEMPORARY_PREFIX}draft-"
"""Prefix of files that are being written."""

WORKSHOP_PREFIX = f"{TEMPORARY_PREFIX}workshop-"
"""Prefix of private directories."""

_TEMPORARY = re.compile(
    rf"{re.escape(DRAFT_PREFIX)}[0-9a-f]{{24}}"
    rf"|{re.escape(WORKSHOP_PREFIX)}[a-z0-9_]+"
)
_MOST_FOLDERS = 4096
_SINCE_START = getattr(time, "CLOCK_BOOTTIME", 0)  # without Linux, `_is_running` never uses it
_PIECE_BYTES = 1 << 18

_NETWORK = frozenset(
    {"9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "gfs2", "gpfs", "lustre", "ncpfs"}
    | {"nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs"}
    | {"vmhgfs", "wekafs"}
)

_searched: set[bytes] = set()
_lock_files: set[int] = set()


def open_regular(path: str | bytes | Path, flags: int = os.O_RDONLY) -> int:
    """Open a regular file, as an ``opener`` does; opening a pipe would wait for its writer."""
    handle = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    return handle


def read_file(path: Path) -> bytes:
    """Read a regular file; raises OSError."""
    with open(path, "rb", opener=open_regular) as file:
        return file.read()


def open_draft(folder: bytes, *, locked: bool = True) -> tuple[bytes, int]:
    """Make an empty temporary file, locked until closed; a process's first removes abandoned ones.

    Returns its path, which the caller renames or unlinks, and a handle, which the caller closes.
    Without a lock, a process in another container may take the file for an abandoned one.
    """
    while True:
        path, handle = _created(folder)
        if not locked or (not _is_locked(handle) and os.path.lexists(path)):
            break
        os.close(handle)  # before it was locked, another process took it for an abandoned one
    if folder not in _searched:
        if len(_searched) >= _MOST_FOLDERS:
            _searched.clear()
        _searched.add(folder)
        remove_abandoned(folder, os.fstat(handle).st_mtime)
    return path, handle


def _created(folder: bytes) -> tuple[bytes, int]:
    name = f"{prefix_here(folder)}{os.getpid():06x}{next(_numbers(os.getpid())):010x}"
    path = os.path.join(folder, name.encode())
    return path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


@lru_cache(1)
def _numbers(pid: int) -> Iterator[int]:
    """Count from a random number: a killed process of the same pid may have left files."""
    return itertools.count(secrets.randbits(39))


@lru_cache(_MOST_FOLDERS)
def prefix_here(folder: bytes) -> str:
    """Return the prefix of drafts of this boot of the machine, this container and file system."""
    try:
        system = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        system += os.readlink(b"/proc/self/ns/pid")
    except OSError:  # no Linux
        system = secrets.token_bytes()
    place = system + str(os.stat(folder).st_dev).encode()
    return f"{DRAFT_PREFIX}{hashlib.sha256(place).hexdigest()[:8]}"


def _is_running(draft: Path) -> bool | None:
    """Whether the process that began a file runs; None if it is not visible from here."""
    prefix = prefix_here(os.fsencode(draft.parent))
    match = re.fullmatch(rf"{re.escape(prefix)}([0-9a-f]{{6}})[0-9a-f]{{10}}", draft.name)
    if match is None:
        return None
    try:
        status = Path(f"/proc/{int(match[1], 16)}/stat").read_bytes()
        written_seconds = draft.stat().st_mtime
    except OSError:  # the process has ended, or the system has no /proc
        return int(match[1], 16) == os.getpid()
    state, *numbers = status.rpartition(b")")[2].split()
    begun_seconds = int(numbers[18]) / os.sysconf("SC_CLK_TCK") - time.clock_gettime(_SINCE_START)
    if written_seconds < time.time() + begun_seconds - 2 and not is_on_network(draft.parent):
        return False  # a later process has the same number
    return state not in b"ZX"  # killed, and not waited for yet


def locks_exclude(folder: Path) -> bool:
    """Try whether a lock in a directory keeps other processes of this machine out."""
    try:
        return _second_is_refused(os.fsencode(folder))
    except OSError as error:
        return error.errno in FULL and not is_on_network(folder)


@lru_cache(_MOST_FOLDERS)
def _second_is_refused(folder: bytes) -> bool:
    path, handle = _created(folder)
    try:
        second = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            return not _is_locked(handle) and _is_locked(second)
        finally:
            os.close(second)
    finally:
        os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(path)


def is_on_network(folder: Path, mounts: str = "/proc/self/mounts") -> bool:
    """Whether a directory, which may not exist yet, is on a network file system."""
    path = Path(os.path.realpath(folder))
    try:
        lines = Path(mounts).read_text(errors="surrogateescape").splitlines()
    except OSError:  # no Linux
        return False
    kinds: dict[str, str] = {}
    for line in lines:
        _, target, kind, *_ = line.split(" ")
        kinds[target.replace("\\040", " ")] = kind
    mount = next((str(each) for each in (path, *path.parents) if str(each) in kinds), "/")
    kind = kinds.get(mount, "")
    return kind in _NETWORK or kind.startswith("fuse.")


def remove_abandoned(folder: bytes, now_seconds: float) -> None:
    """Remove temporary files of killed processes; ``now_seconds`` is of the file system's clock."""
    with suppress(OSError):
        with os.scandir(os.fsdecode(folder)) as entries:
            paths = [Path(entry.path) for entry in entries if _TEMPORARY.fullmatch(entry.name)]
        for path in paths:
            with suppress(OSError):
                modified_seconds = max(each.lstat().st_mtime for each in (path, *path.rglob("*")))
                is_old = modified_seconds <= now_seconds - DRAFT_ABANDONED_SECONDS
                if path.name.startswith(DRAFT_PREFIX):
                    removed_if_abandoned(path, is_old)
                elif not path.is_symlink():
                    lock = path / "lock"  # of a workshop; its owner may have been killed before
                    if (is_old or lock.exists()) and removed_if_abandoned(lock, is_old):
                        shutil.rmtree(path, ignore_errors=True)


def remove_abandoned_below(root: Path, folders: Iterable[Path]) -> None:
    """Call `remove_abandoned` for ``folders`` and all below, by the clock at ``root``."""
    with suppress(OSError, LarderError), draft(root / "clock") as clock:
        now_seconds = os.fstat(clock.handle).st_mtime
        for folder in folders:
            for each, _, _ in os.walk(folder):
                remove_abandoned(os.fsencode(each), now_seconds)


def removed_if_abandoned(draft: Path, is_old: bool = False) -> bool:
    """Remove a draft if its process was certainly killed, or if it is old and not locked.

    Returns whether the draft is gone. Raises OSError if this user may not remove it.
    """
    try:
        handle = open_regular(draft, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        is_running, folder = _is_running(draft), draft.parent
        if is_running is None and not is_old:
            is_running = _is_locked(handle) or is_on_network(folder) or not locks_exclude(folder)
        if is_running or _is_locked(handle):
            return False
        draft.unlink(missing_ok=True)
    finally:
        os.close(handle)
    return True


def _is_locked(handle: int) -> bool:
    """Lock a file, if possible; returns whether another process has locked it already."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # its file system has no locks
        return False
    return False


def check_inside(folder: bytes, root: bytes) -> None:
    """Refuse, by OSError, to write to a folder if a link on the way leads out of a root.

    The root may be a link itself. A link may replace a folder at any time, so each call looks.
    """
    root, below = os.path.abspath(root), os.path.abspath(folder)
    while len(below) > len(root) and not os.path.islink(below):
        below = os.path.dirname(below)
    if below != root:
        real = os.path.realpath(folder), os.path.realpath(root)
        if os.path.commonpath(real) != real[1]:
            raise OSError(errno.ELOOP, "a link leads out of the directory", os.fsdecode(folder))


@contextmanager
def file_lock(path: str | bytes | Path) -> Iterator[None]:
    """Hold a lock file exclusively; the system releases it when its holder dies.

    The empty file remains: if it were removed, two processes could lock two files of the same name.
    Without locks of the file system, the block runs without one.
    """
    try:
        handle = open_regular(path, os.O_NOFOLLOW | os.O_RDWR | os.O_CREAT)
    except PermissionError:
        if not os.path.lexists(path):
            raise
        handle = open_regular(path, os.O_NOFOLLOW)  # a file of another user may be locked, too
    owner = os.getpid()
    _lock_files.add(handle)
    try:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        if os.getpid() == owner:  # a forked child has closed it
            _lock_files.discard(handle)
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_UN)
            os.close(handle)


def _close_lock_files() -> None:
    """Close lock files in a forked child, which would hold the locks of its parent otherwise."""
    for handle in _lock_files:
        os.close(handle)
    _lock_files.clear()


os.register_at_fork(after_in_child=_close_lock_files)


def open_shared(path: Path) -> int:
    """Open a file, else OSError; `unused` is false until the handle is closed, even by a crash."""
    handle = open_regular(path)
    with suppress(OSError):  # its file system has no locks
        fcntl.flock(handle, fcntl.LOCK_SH)
    if not os.fstat(handle).st_nlink:
        os.close(handle)
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    return handle


@contextmanager
def unused(path: Path) -> Iterator[bool]:
    """Yield whether no process has a file open by `open_shared`; meanwhile none can open it."""
    try:
        handle = open_regular(path, os.O_RDWR)  # NFS locks only writable files
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        handle = open_regular(path)
    try:
        yield _is_unused(path, handle)
    finally:
        os.close(handle)


def _is_unused(path: Path, handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if locks_exclude(path.parent):
            return True
    except BlockingIOError:
        return False
    except OSError:  # its file system has no locks, or none for this user
        pass
    status = os.fstat(handle)
    return time.time() - max(status.st_atime, status.st_mtime) > DRAFT_ABANDONED_SECONDS


@contextmanager
def workshop(parent: Path) -> Iterator[Path]:
    """Make a private directory in ``parent``, removed at the end; remove abandoned ones, too."""
    with disk_errors(parent):
        parent.mkdir(parents=True, exist_ok=True)
        while True:
            folder = Path(tempfile.mkdtemp(prefix=WORKSHOP_PREFIX, dir=parent))
            try:
                handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:
                with suppress(OSError):
                    folder.rmdir()
                raise
            if not _is_locked(handle) and os.path.lexists(folder / "lock"):
                break
            os.close(handle)  # before it was locked, another process took it for an abandoned one
        remove_abandoned(os.fsencode(parent), os.fstat(handle).st_mtime)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


class Folding(NamedTuple):
    """Whether names are equal that differ by case only, or by Unicode form only."""

    case: bool = False
    form: bool = False

    def __call__(self, name: str) -> str:
        name = unicodedata.normalize("NFD", name) if self.form else name
        name = name.casefold() if self.case else name
        return unicodedata.normalize("NFC", name) if self.form else name


LOOKS = Folding(case=True, form=True)
"""The folding of names that look alike, or nearly so."""


def twins(
    names: Iterable[str], folding: Folding | Callable[[str], str] = LOOKS
) -> list[tuple[str, str]]:
    """Return pairs of different names that are equal under ``folding``, the earlier name first."""
    first: dict[str, str] = {}
    pairs = [(first.setdefault(folding(name), name), name) for name in names]
    return [(one, other) for one, other in pairs if one != other]


def folding_of(folder: Path) -> Folding:
    """Try which names are equal on the file system of a folder, which may not exist yet."""
    while not folder.exists():
        folder = folder.parent
    with suppress(LarderError, OSError), workshop(folder) as probe:
        (probe / "\u00c9").touch()
        return Folding(case=(probe / "\u00e9").exists(), form=(probe / "E\u0301").exists())
    return Folding()


def check_names(folder: Path, names: Iterable[str]) -> None:
    """Refuse two names that are equal on the file system of a folder (``config.path``)."""
    names = tuple(names)
    for one, other in twins(names, folding_of(folder)) if twins(names) else ():
        message = f"the file system takes {one!r} and {other!r} for one name"
        hint = "rename one of them, or name a directory on another file system"
        raise ConfigError("config.path", message, where=str(folder), hint=hint)


@contextmanager
def scratch() -> Iterator[Path]:
    """Make a private directory for temporary files, removed at the end; remove abandoned ones."""
    with workshop(Path(tempfile.gettempdir())) as folder:
        yield folder


class Draft:
    """A file under its temporary name, open for reading and writing; created by `draft`."""

    def __init__(self, path: Path, handle: int, final: Path) -> None:
        self.path = path
        self.handle = handle
        self._final = final

    def write(self, data: bytes | bytearray | memoryview) -> None:
        left = memoryview(data).cast("B")
        with disk_errors(self._final):
            while left:
                left = left[os.write(self.handle, left) :]

    def write_at(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Write at an offset; several threads may write at once."""
        left = memoryview(data).cast("B")
        with disk_errors(self._final):
            while left:
                count = os.pwrite(self.handle, left, offset)
                left, offset = left[count:], offset + count

    def read(self, start: int, stop: int) -> Iterator[memoryview]:
        """Yield the bytes in pieces; each piece overwrites the one before."""
        buffer = memoryview(bytearray(_PIECE_BYTES))
        with disk_errors(self._final, reading=True):
            while count := os.preadv(self.handle, [buffer[: stop - start]], start):
                yield buffer[:count]
                start += count

    def publish(self) -> None:
        """Make the file durable and give it its final name, replacing an existing file."""
        with disk_errors(self._final):
            os.fsync(self.handle)
            os.replace(self.path, self._final)
            sync_folder(os.fsencode(self._final.parent))
        with suppress(OSError):  # a process that was forked meanwhile shares the lock
            fcntl.flock(self.handle, fcntl.LOCK_UN)


@contextmanager
def draft(final: Path) -> Iterator[Draft]:
    """Make an empty file beside ``final``, removed at the end unless `Draft.publish` was called."""
    with disk_errors(final):
        final.parent.mkdir(parents=True, exist_ok=True)
        name, handle = open_draft(os.fsencode(final.parent))
    path = Path(os.fsdecode(name))
    try:
        yield Draft(path, handle, final)
    finally:
        with suppress(OSError):  # the error of the block counts; a later write removes the file
            path.unlink()
        os.close(handle)


def write_file(path: Path, data: bytes) -> None:
    """Write a complete file in one step, replacing an existing one; creates its directory."""
    with draft(path) as file:
        file.write(data)
        file.publish()


def sync_folder(folder: bytes) -> None:
    """Make the names in a directory durable, if it still exists."""
    try:
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a directory
            raise
    finally:
        os.close(handle)


def sha256_file(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb", buffering=0, opener=open_regular) as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


def folder_bytes(folder: Path) -> int:
    """Sum the bytes of all files below a folder; 0 if the folder does not exist."""
    size_bytes = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # a temporary file of another run
                size_bytes += os.lstat(os.path.join(path, name)).st_size
    return size_bytes


def check_room(folder: Path, need_bytes: int, written_bytes: Callable[[], int] = lambda: 0) -> None:
    """Refuse to write more below a folder, which may not exist yet, than fits on its disk.

    ``written_bytes`` returns the part that is already written; it is called only if that decides.
    """
    ancestor = folder.absolute()
    while not ancestor.exists():
        ancestor = ancestor.parent
    disk = shutil.disk_usage(ancestor)
    if not disk.total or need_bytes <= disk.free:  # some file systems do not say
        return
    need_bytes -= written_bytes()
    if need_bytes > disk.free:
        need, free = format_bytes(need_bytes), format_bytes(disk.free)
        message = f"{need} would be written, but only {free} are free"
        hint = "make room there, or choose another storage"
        raise StoreError("store.full", message, where=str(folder), hint=hint)


SYSTEM_LIMITS = {
    errno.ENFILE: (
        "this machine has as many files open as it may",
        "raise fs.file-max with sysctl",
    ),
    errno.EMFILE: (
        "this process has as many files open as it may",
        "raise the limit with ulimit -n (LimitNOFILE of systemd, --ulimit nofile of Docker)",
    ),
    errno.ENOMEM: (
        "the system gives this process no more memory",
        "raise the memory of the container or machine, or ulimit -v, or use fewer processes",
    ),
}
"""Limits of the system by error number: the message, and how to raise the limit."""

_THREADS = (
    "the system starts no more threads for this process",
    "raise the limit of processes (ulimit -u, or pids of the container) or of memory",
)
_LIMIT_TEXTS = {
    **{os.strerror(number): limit for number, limit in SYSTEM_LIMITS.items()},
    "initializing curl-multi failed": SYSTEM_LIMITS[errno.EMFILE],
    "can't start new thread": _THREADS,
    "Failed to launch worker thread": _THREADS,  # Arrow
}


def limit_error(error: BaseException, where: str) -> FatalError | None:
    """Return ``run.limit`` if the text of an error names a limit of the system, else None."""
    said = os.strerror(errno.ENOMEM) if isinstance(error, MemoryError) else str(error)
    for text, limit in _LIMIT_TEXTS.items():
        if text in said:
            message, hint = limit
            if limit == SYSTEM_LIMITS[errno.EMFILE]:
                message += f": {resource.getrlimit(resource.RLIMIT_NOFILE)[0]:,}"
            return FatalError("run.limit", message, where=where, hint=hint)
    return None


def full_error(error: Exception, where: str) -> StoreError:
    """Return ``store.full`` with the reason; for a limit, LMDB passes on no error number."""
    message, hint = "no space is left on the disk", "free some space, or use another directory"
    most, number = resource.getrlimit(resource.RLIMIT_FSIZE)[0], getattr(error, "errno", None)
    if number == errno.EDQUOT:
        message = "the quota of this user on the disk is used up"
    elif number != errno.ENOSPC and most != resource.RLIM_INFINITY:
        message = f"a file of this process may have at most {most:,} bytes"
        hint = "raise the limit with ulimit -f (LimitFSIZE of systemd)"
    elif number == errno.EFBIG:
        message = "the file is larger than its file system allows"
    return StoreError("store.full", message, where=where, hint=hint)


@contextmanager
def disk_errors(path: Path, *, reading: bool = False) -> Iterator[None]:
    """Turn an OSError about ``path`` into ``store.full``, ``run.limit`` or ``config.path``."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise full_error(error, str(path)) from error
        if limit := limit_error(error, str(path)):
            raise limit from error
        done = "read" if reading else "written"
        message = f"cannot be {done}: {error.strerror or type(error).__name__}"
        if error.errno == errno.ENOTDIR:
            path = next(filter(os.path.exists, (path, *path.parents)), path)
            message = "not a directory"
        raise ConfigError("config.path", message, where=str(path)) from error
