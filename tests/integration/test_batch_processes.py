"""Batches in processes of their own: the same shards, errors and stops as in one process."""

import hashlib
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, write

from larder.errors import FatalError
from larder.jobs import processes
from larder.jobs.manifests import fetched
from larder.jobs.results import RunError
from larder.jobs.runner import InlineRunner
from larder.manifest.sealed import StoredFile
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.store import open_store
from tests.support.processes import is_running

pytestmark = pytest.mark.exhaustive

OBJECTS = images("abcdef", 20)
SHARED: dict[str, Any] = {"cache": None, "validate": "none"}
TWO: dict[str, Any] = {**SHARED, "cluster": {"runner": {"workers": 2, "batch_bytes": 15_000}}}


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has every batch but one done in a process; the IDs of the processes that were started."""
    started: list[int] = []
    begin = processes.Process.__init__

    def noted(process: Any) -> None:
        begin(process)
        started.append(process.process.pid)

    monkeypatch.setattr(processes, "WORTH_ROWS", 1)
    monkeypatch.setattr(processes.Process, "__init__", noted)
    return started


@pytest.fixture
def apart(begun: list[int]) -> Iterator[list[int]]:
    """Has every batch done in a process."""
    with processes._this_process:
        yield begun


def test_processes_make_the_same_version_as_threads(tmp_path, apart):
    one = directory_lab(tmp_path / "one", OBJECTS, **SHARED)
    two = Lab(one.source, str(tmp_path / "two"), tmp_path / "out", {**one.fields, **TWO})
    alone = one.prepare()
    assert not apart, "a single batch is done here"
    document = two.prepare()
    assert len(apart) == 2, "they are used again for further batches"
    assert not any(map(is_running, apart))
    assert (document["version"], document["digest"]) == (alone["version"], alone["digest"])
    assert document["stages"]["shard"]["objects"] == alone["stages"]["shard"]["objects"]
    assert document["stages"]["shard"]["bytes"] == alone["stages"]["shard"]["bytes"]
    two.only()


def test_one_batch_at_a_time_stays_here(tmp_path, begun):
    lab = directory_lab(tmp_path, OBJECTS, **TWO)
    lab.prepare()
    assert len(begun) == 1, "the other one of two"
    lab.only()


def test_a_batch_that_failed_here_leaves_its_place(tmp_path, begun):
    lab = directory_lab(tmp_path, OBJECTS, **TWO)
    stop = threading.Event()
    with pytest.raises(FatalError):
        prepare(lab.settings(), InlineRunner(2, Watching(stop.set), stop))
    assert processes._this_process.acquire(blocking=False)
    processes._this_process.release()


def test_a_bad_sample_is_reported_as_in_one_process(tmp_path, apart):
    lab = directory_lab(tmp_path, OBJECTS, **{**TWO, "validate": "decode"})
    write(lab.source, {"b/05.png": b"no image"})
    with pytest.raises(RunError) as caught:
        lab.prepare()
    assert [failure.key for failure in caught.value.report.failures] == ["b/05.png"]
    assert apart
    assert not any(map(is_running, apart))
    write(lab.source, {"b/05.png": OBJECTS["b/05.png"]})
    lab.prepare()
    lab.only()


class Watching(StageTimes):
    """Calls a function at the first progress of the shards."""

    def __init__(self, then: Any) -> None:
        super().__init__()
        self._then = then

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        super().advance(stage, objects=objects, bytes=bytes)
        then, self._then = (self._then, None) if stage == "shard" else (None, self._then)
        if then:
            then()


def test_a_killed_process_fails_the_run_and_the_next_run_continues(tmp_path, apart):
    lab = directory_lab(tmp_path, OBJECTS, **TWO)
    progress = Watching(lambda: [os.kill(pid, signal.SIGKILL) for pid in apart])
    with pytest.raises(FatalError) as caught:
        prepare(lab.settings(), InlineRunner(2, progress))
    assert caught.value.code == "run.failed"
    lab.prepare()
    lab.only()


def test_a_run_that_is_stopped_leaves_no_process(tmp_path, apart):
    lab = directory_lab(tmp_path, OBJECTS, **TWO)
    stop = threading.Event()
    with pytest.raises(FatalError) as caught:
        prepare(lab.settings(), InlineRunner(2, Watching(stop.set), stop))
    assert caught.value.code == "run.interrupted"
    assert apart
    assert not any(map(is_running, apart))
    lab.prepare()
    lab.only()


def test_a_process_ends_with_the_one_that_started_it(tmp_path):
    process = processes.Process()
    process._stdin.close()
    assert process.process.wait(timeout=60) == 0
    process.close()


class Bucket:
    """A store without local paths."""

    def __init__(self, folder: str) -> None:
        self._store = open_store(folder)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    class features:  # noqa: N801 - the name is an attribute of stores
        local_path = False


def download(folder: str, ref: StoredFile) -> str:
    with fetched(Bucket(folder), ref) as path:  # type: ignore[arg-type]
        return str(path)


def test_a_process_removes_what_it_has_downloaded(tmp_path, monkeypatch):
    (tmp_path / "bucket").mkdir()
    (tmp_path / "bucket/m").write_bytes(b"")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(sys.path))
    process = processes.Process()
    ref = StoredFile("m", 0, hashlib.sha256(b"").hexdigest(), "rows")
    path = Path(process.call(download, str(tmp_path / "bucket"), ref))
    assert path.is_relative_to(tmp_path / "tmp")
    assert path.exists()
    process.close()
    assert not list((tmp_path / "tmp").iterdir())


@pytest.mark.parametrize(
    ("place", "apart_there"),
    [
        ("s3://bucket/data", True),
        ("memory://data", False),
        ({"url": "s3://bucket/data", "block": "aws-credentials/team"}, False),
    ],
)
def test_what_only_this_process_has_stays_here(place, apart_there, tmp_path):
    lab = Lab(place, str(tmp_path), tmp_path / "out", {})
    settings = lab.settings()

    places = settings.dataset.source, settings.cluster.storage
    assert processes.suits(places, 10**5, 10**8, 2) is apart_there
    assert not processes.suits(places, 10**5, 10**8, 1)
    assert not processes.suits(places, 10**3, 10**6, 2)
    assert not processes.suits(places, 10**5, 10**10, 2)
