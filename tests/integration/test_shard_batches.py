"""How a batch of shards is read."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from pipeline_lab import directory_lab

from larder.pipeline.inline import prepare
from larder.progress import NullProgress


class Threads(NullProgress):
    """Notes which threads there are while shards are made."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        if stage == "shard":
            self.names |= {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize("mirror", [True, False])
def test_files_are_read_in_the_thread_that_packs_them(tmp_path: Path, mirror: bool) -> None:
    lab, seen = directory_lab(tmp_path, mirror=mirror, cache=None, validate="header"), Threads()
    prepare(lab.settings(), seen)
    assert seen.names
    assert not [name for name in seen.names if name.startswith("larder-read")]
