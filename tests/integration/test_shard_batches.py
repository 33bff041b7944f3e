"""How a batch of shards is read."""

import threading
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import directory_lab

from larder.errors import FatalError
from larder.jobs.runner import InlineRunner
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.segments import shard

pytestmark = pytest.mark.exhaustive


def test_a_shard_that_ends_after_a_stop_has_no_receipt(tmp_path, monkeypatch):
    stop, build = threading.Event(), shard.build_shard

    def late(*arguments: Any, **more: Any) -> Any:
        result = build(*arguments, **more)
        stop.set()
        return result

    monkeypatch.setattr(shard, "build_shard", late)
    lab = directory_lab(tmp_path, cache=None)
    with pytest.raises(FatalError):
        prepare(lab.settings(), InlineRunner(1, StageTimes(), stop))
    work = [path for path in Path(lab.storage).rglob("segments/*/work/**/*") if path.is_file()]
    assert [path.name for path in work if path.suffix == ".json"] == []
    assert list(Path(lab.storage).rglob("shards/**/*.tar")), "it was made all the same"
