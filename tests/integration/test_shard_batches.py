"""How a batch of shards is read."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import directory_lab

from larder.errors import FatalError
from larder.jobs.runner import InlineRunner
from larder.pipeline import shard
from larder.pipeline.prepare import prepare
from larder.progress import NullProgress, StageTimes

pytestmark = pytest.mark.exhaustive


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
    prepare(lab.settings(), InlineRunner(2, StageTimes(seen)))
    assert seen.names
    assert not [name for name in seen.names if name.startswith("larder-read")]


def test_a_shard_that_ends_after_a_stop_has_no_receipt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, build = threading.Event(), shard.build_shard

    def late(*arguments: Any, **more: Any) -> Any:
        result = build(*arguments, **more)
        stop.set()
        return result

    monkeypatch.setattr(shard, "build_shard", late)
    lab = directory_lab(tmp_path, cache=None)
    with pytest.raises(FatalError, match="stopped"):
        prepare(lab.settings(), InlineRunner(1, StageTimes(), stop))
    work = [path for path in Path(lab.storage).rglob("segments/*/work/**/*") if path.is_file()]
    assert [path.name for path in work if path.suffix == ".json"] == []
    assert list(Path(lab.storage).rglob("shards/**/*.tar")), "it was made all the same"
