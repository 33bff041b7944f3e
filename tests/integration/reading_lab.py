"""A Python with the base packages alone, and copies that are killed."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from larder.store import download
from larder.store.own_files import read_digest

LIGHT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        heavy = ("prefect", "pyarrow", "pydantic", "yaml", "boto3", "gcsfs", "PIL", "tensorflow")
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Blocker())
"""
"""Begins a program that cannot import what a light install lacks."""


def killed_while_it_copies(copy: Callable[[Path], object], folder: Path, after: int) -> None:
    """Copy to a folder, in a process that is killed within the file after so many."""

    def deadly(store: Any, key: str, write: Callable[[Any], object]) -> Any:
        nonlocal after
        after -= 1
        if after < 0:
            write(b"begun")
            os.kill(os.getpid(), signal.SIGKILL)
        return read_digest(store, key, write)

    def run() -> None:
        download.read_digest = deadly  # type: ignore[assignment]
        copy(folder)

    killed = multiprocessing.get_context("fork").Process(target=run)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
