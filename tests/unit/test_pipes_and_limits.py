"""Pipes and devices in place of files, limits of file sizes, and refused deletions."""

from __future__ import annotations

import errno
import os
import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

import larder
from larder.datalayer.cache_catalog import list_caches
from larder.disk import (
    disk_errors,
    file_lock,
    open_shared,
    read_file,
    removed_if_abandoned,
    sha256_file,
    unused,
)
from larder.store import open_store
from larder.store.download import is_downloaded
from tests.support.errors import code_of, larder_error


@pytest.mark.parametrize(
    ("number", "limit", "said"),
    [
        (errno.ENOSPC, 4096, "no space"),
        (errno.ENOSPC, resource.RLIM_INFINITY, "no space"),
        (errno.EDQUOT, 4096, "quota"),
        (errno.EFBIG, 4096, "4,096 bytes"),
        (errno.EFBIG, resource.RLIM_INFINITY, "file system"),
    ],
)
def test_why_a_file_cannot_grow(number, limit, said, monkeypatch, tmp_path):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, limit))
    with larder_error("store.full") as caught, disk_errors(tmp_path):
        raise OSError(number, os.strerror(number))
    assert said in caught.value.message


def test_a_deletion_through_a_link_is_not_called_a_creation(tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "root/out").symlink_to(tmp_path)
    (tmp_path / "kept").write_bytes(b"")
    with larder_error("object.bad_key") as caught:
        open_store(str(tmp_path / "root"), retry=None).delete("out/kept")
    assert "create" not in caught.value.message
    assert (tmp_path / "kept").exists()


def bound_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(os.path.relpath(path))


ODD = {
    "pipe": os.mkfifo,
    "link to a pipe": lambda path: (os.mkfifo(f"{path}-pipe"), path.symlink_to(f"{path}-pipe")),
    "socket": bound_socket,
    "device": lambda path: path.symlink_to("/dev/zero"),
    "directory": os.mkdir,
}
OPENS: dict[str, Callable[[Path], object]] = {
    "to read": read_file,
    "to hash": sha256_file,
    "to share": open_shared,
    "to look whether it is used": lambda path: ExitStack().enter_context(unused(path)),
    "to lock": lambda path: ExitStack().enter_context(file_lock(path)),
    "as a draft": removed_if_abandoned,
}


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
@pytest.mark.parametrize("call", OPENS.values(), ids=OPENS)
def test_what_is_no_regular_file_is_refused(call, make, tmp_path, monkeypatch):
    """A pipe kept its reader waiting for ever, and a device never ends."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "x.mdb")
    with pytest.raises(OSError, match=r"regular file|No such device|Is a directory|symbolic links"):
        call(tmp_path / "x.mdb")
    assert not is_downloaded(tmp_path / "x.mdb", os.stat(tmp_path / "x.mdb").st_size)


@pytest.mark.parametrize("make", ODD.values(), ids=ODD)
def test_a_cache_file_that_is_no_file_ends_its_reader_and_no_listing(make, tmp_path, monkeypatch):
    train = larder.cache_train_dataset("d", "v1", storage=str(tmp_path))(lambda: range(10))
    train()
    (file,) = tmp_path.glob("**/*.mdb")
    monkeypatch.chdir(file.parent)
    file.unlink()
    make(file)
    assert code_of(train) in ("config.path", "damage.size")
    (listed,) = list_caches(str(tmp_path))["caches"]
    assert listed["problem"]
