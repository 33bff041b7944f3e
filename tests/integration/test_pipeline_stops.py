"""A run that is stopped at any write, and the run after it."""

from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pipeline_lab import directory_lab, images, memory_lab, shard_names
from required import nightly

from larder.errors import FatalError
from larder.jobs.runner import InlineRunner
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.segments import shard
from tests.support.runs import between
from tests.support.stores import Stop

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**", "d/**"], "validation": ["c/**"]},
    "shards": {"bytes": 8_000},
    "validate": "decode",
    "cache": {"records": "decoded"},
    "on_bad_sample": "skip",
    "mirror": True,
    "cluster": {"runner": {"workers": 2, "batch_bytes": 12_000}, "copy": {"concurrency": 3}},
}
OTHER_LIMITS = {"runner": {"workers": 1, "batch_bytes": 17_000}, "copy": {"concurrency": 1}}
# Two that are left out: one of several in its shard, one alone in its batch.
OBJECTS = images() | {"a/01.png": b"no image", "b/03.png": b"none either" * 1500}


def test_a_run_stopped_at_any_write_can_be_continued(tmp_path):
    whole, undisturbed = memory_lab(tmp_path, OBJECTS, **FIELDS), Stop()
    document = whole.stopped(undisturbed)
    assert document is not None
    keys = [key for _, key in undisturbed.writes]
    # Of copies every fifth.
    stops = [at for at, key in enumerate(keys) if at % 5 == 0 or not key.startswith("mirror/")]
    expected = whole.only()
    copied = []
    for after in sorted({*stops[:: 1 if nightly() else 7], stops[-1]}):
        lab, stop = memory_lab(tmp_path, OBJECTS, **FIELDS), Stop(after)
        cut = lab.stopped(stop)
        assert cut is None or not stop.stopped
        assert set(lab.check()) <= {document["version"]}
        # Other limits cut other batches: receipts of both overlap.
        limits = OTHER_LIMITS if after % 2 else FIELDS["cluster"]
        with between():
            again = lab.prepare(cluster=limits)
        found = lab.only()
        assert shard_names(found) == shard_names(expected), f"stopped after {after} writes"
        for same in ("version", "digest", "inputs", "skipped", "cache"):
            assert again[same] == document[same] or again["status"] == "reused"
        assert lab.tag.version == document["version"]
        copied.append(again["copied"]["count"])
    assert copied == sorted(copied, reverse=True)
    assert copied[-1] == 0


def test_a_shard_that_ends_after_a_stop_has_no_receipt(tmp_path, monkeypatch):
    stop, build = Event(), shard.build_shard

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
