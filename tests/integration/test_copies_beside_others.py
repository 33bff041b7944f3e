"""Copies of versions that another process is making, or has made for another user."""

import fcntl
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import directory_lab
from required import missing

import larder
from larder.store import download
from larder.store.own_files import read_digest
from larder.versions import version_copy

FORK = multiprocessing.get_context("fork")


def published(folder: Path) -> Any:
    lab = directory_lab(folder, splits={"training": ["a/**", "b/**"], "validation": "c/**"})
    lab.prepare()
    return larder.open(f"{lab.storage}/larder/d")


def copied(data: Any, folder: Path) -> None:
    data.copy_to(folder)


def downloaded(data: Any, folder: Path) -> None:
    data.download(folder)


def paused(copy: Callable[[], object], begun: Any, go_on: Any) -> None:
    """Copy, and wait once where the first file has been begun."""

    def read(store: Any, key: str, write: Callable[[Any], object]) -> Any:
        if not begun.is_set():
            begun.set()
            go_on.wait()
        return read_digest(store, key, write)

    download.read_digest = read  # type: ignore[assignment]
    copy()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("copy", [copied, downloaded])
@pytest.mark.parametrize("lock", ["granted", "of one process"])
def test_copies_do_not_end_each_other_where_locks_lie(copy, lock, tmp_path, monkeypatch):
    data = published(tmp_path)
    monkeypatch.setattr(fcntl, "flock", lambda handle, operation: None)
    if lock == "of one process":
        monkeypatch.setattr("larder.disk.locks_exclude", lambda folder: True)
    folder = tmp_path / "copy"
    begun, go_on = FORK.Event(), FORK.Event()
    first = FORK.Process(
        target=paused, args=(lambda: copy(data, folder), begun, go_on), daemon=True
    )
    first.start()
    while not begun.wait(1):
        assert first.is_alive(), "the first copy has ended before it wrote anything"
    copy(data, folder)
    go_on.set()
    first.join()
    assert first.exitcode == 0
    assert not list(folder.rglob(".larder-tmp-draft-*"))


@pytest.mark.parametrize("copy", [copied, downloaded])
def test_another_user_needs_no_lock_for_what_is_complete(copy):
    if os.geteuid():
        missing("needs root")
    with tempfile.TemporaryDirectory() as temporary:
        Path(temporary).chmod(0o755)
        data, folder = published(Path(temporary)), Path(temporary, "copy")
        copy(data, folder)
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}

        def read() -> None:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            copy(data, folder)

        reader = FORK.Process(target=read)
        reader.start()
        reader.join()
        assert reader.exitcode == 0
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


@pytest.mark.parametrize("copy", [copied, downloaded])
def test_what_is_complete_is_not_written(copy, tmp_path, monkeypatch):
    """A mount that is read-only refuses even root."""
    data, folder = published(tmp_path), tmp_path / "copy"
    copy(data, folder)
    for module in (version_copy, larder.readers.access):
        monkeypatch.setattr(module, "locked", None)
    copy(data, folder)
