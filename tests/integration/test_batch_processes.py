"""Batches in processes of their own: the same shards, errors and stops as in one process."""

import hashlib
import multiprocessing
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from copy_lab import directories
from pipeline_lab import Lab, directory_lab, images, png, write

from larder.copy.copying import copy
from larder.errors import FatalError
from larder.jobs import crew, processes
from larder.jobs.manifests import fetched
from larder.jobs.results import RunError
from larder.jobs.step_runner import InlineRunner
from larder.manifest.sealed import StoredFile
from larder.pipeline.preparing import prepare
from larder.progress import NullProgress, StageTimes
from larder.segments import cache_step, shard
from larder.segments.segment_job import Job
from larder.store import open_store
from larder.verify.verifying import VerifySettings, verify
from tests.support.errors import larder_error
from tests.support.processes import is_running

pytestmark = pytest.mark.push

OBJECTS = images("abcdef", 20)
SHARED: dict[str, Any] = {"cache": None, "validate": "none"}
TWO: dict[str, Any] = {**SHARED, "cluster": {"runner": {"workers": 2, "batch_bytes": 15_000}}}


@pytest.mark.parametrize("mirror", [False, True])
def test_processes_make_the_same_version_as_threads(mirror, tmp_path, started):
    one = directory_lab(tmp_path / "one", OBJECTS, **SHARED, mirror=mirror)
    two = Lab(one.source, str(tmp_path / "two"), tmp_path / "out", {**one.fields, **TWO})
    alone = prepare(one.settings(), InlineRunner(1, StageTimes()))
    assert not started
    document = two.prepare()
    assert len(started) == (4 if mirror else 2), "they are used again for further units"
    assert not any(map(is_running, started))
    assert (document["version"], document["digest"]) == (alone["version"], alone["digest"])
    assert document["stages"]["shard"]["objects"] == alone["stages"]["shard"]["objects"]
    assert document["stages"]["shard"]["bytes"] == alone["stages"]["shard"]["bytes"]
    assert document["stages"].keys() == alone["stages"].keys()
    two.only()


def test_processes_copy_each_object_once_however_often_they_are_killed(tmp_path, started):
    objects = {f"{n % 7}/{n:03}": bytes([n]) * 100 for n in range(200)}
    with directories(tmp_path, objects, settings=["runner.workers=2"]) as lab:
        kill = Watching(lambda: [os.kill(pid, signal.SIGKILL) for pid in started], "mirror")
        document = copy(lab.settings(), InlineRunner(2, kill))
        assert lab.there() == objects
    assert document["copied"] == {"count": 200, "bytes": 20_000}
    mirror = document["stages"]["mirror"]
    assert (mirror["objects"], mirror["bytes"]) == (200, 20_000)
    assert set(document["stages"]) == {"inventory", "compare", "mirror", "publish"}
    assert len(started) > 2
    assert not any(map(is_running, started))


def test_what_processes_cannot_copy_is_listed_once(tmp_path, started):
    objects = {f"{n:03}": bytes([n]) for n in range(200)}
    with directories(tmp_path, objects, settings=["runner.workers=2"]) as lab:
        for key in ("010", "150"):
            Path(lab.storage, key).mkdir(parents=True)
        with pytest.raises(RunError) as caught:
            lab.copy()
        assert [failure.key for failure in caught.value.report.failures] == ["010", "150"]
        assert lab.there().keys() == objects.keys() - {"010", "150"}
    assert started


DECODED: dict[str, Any] = {**SHARED, "validate": "decode", "cache": {"records": "decoded"}}


def test_processes_make_the_same_cache_as_threads(tmp_path, started, monkeypatch):
    monkeypatch.setattr(cache_step, "_PIECE_ROWS", 7)
    sizes = {f"a/{n}.png": png(n, 5 + n) for n in range(10)}  # the schema is widened on the way
    one = directory_lab(tmp_path / "one", {**OBJECTS, **sizes}, **DECODED)
    fields = {**one.fields, "cluster": {"runner": {"workers": 2}}}
    two = Lab(one.source, str(tmp_path / "two"), tmp_path / "out", fields)
    alone = prepare(one.settings(), InlineRunner(1, StageTimes()))
    document = two.prepare()
    assert started
    assert not any(map(is_running, started))
    assert (document["version"], document["digest"]) == (alone["version"], alone["digest"])
    assert document["stages"]["cache"]["bytes"] == alone["stages"]["cache"]["bytes"]
    two.only()


@pytest.mark.parametrize(("kind", "count"), [("local", 2), ("dask", 0), ("ray", 0)])
def test_workers_of_dask_and_ray_transform_images_themselves(
    kind, count, tmp_path, started, monkeypatch
):
    def as_in_worker(job: Job, *rest: Any) -> Any:
        runner = job.cluster.runner.model_copy(update={"kind": kind, "workers": 2})
        cluster = job.cluster.model_copy(update={"runner": runner})
        return open_build(replace(job, cluster=cluster), *rest)

    open_build = shard.open_build
    monkeypatch.setattr(shard, "open_build", as_in_worker)
    resized = {"images": {"resize": 16}}
    lab = directory_lab(tmp_path, images("ab", 4), **{**SHARED, "shards": resized})
    prepare(lab.settings(), InlineRunner(1, StageTimes()))
    assert len(started) == count


@pytest.mark.parametrize("mirror", [False, True])
def test_files_that_only_look_new_are_compared_by_processes(mirror, tmp_path, started):
    lab = directory_lab(tmp_path, OBJECTS, **{**TWO, "mirror": mirror})
    version = lab.prepare()["version"]
    for path in Path(lab.source).rglob("*.png"):
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))
    write(lab.source, {"b/05.png": OBJECTS["b/06.png"]})
    started.clear()
    document = lab.prepare()
    assert started
    assert not any(map(is_running, started))
    assert document["version"] != version
    assert document["growth"]["samples"]["changed"] == 1
    assert document["stages"]["compare"]["objects"] == sum(key.endswith(".png") for key in OBJECTS)
    assert len(lab.check()) == 2


class Watching(StageTimes):
    """Calls a function at the first progress of a stage."""

    def __init__(self, then: Any, stage: str = "shard") -> None:
        super().__init__()
        self._then = then
        self._awaited = stage

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        super().advance(stage, objects=objects, bytes=bytes)
        if stage == self._awaited and self._then:
            then, self._then = self._then, None
            then()


@pytest.mark.parametrize("stage", ["shard", "cache"])
def test_what_a_killed_process_did_is_done_once_more(stage, tmp_path, started, monkeypatch):
    monkeypatch.setattr(cache_step, "_PIECE_ROWS", 7)
    lab = directory_lab(tmp_path, OBJECTS, **{**DECODED, "cluster": TWO["cluster"]})
    before: list[int] = []

    def kill() -> None:
        before[:] = started
        for pid in filter(is_running, before):
            os.kill(pid, signal.SIGKILL)

    prepare(lab.settings(), InlineRunner(2, Watching(kill, stage)))
    assert len(started) > len(before)
    lab.only()


def test_a_unit_whose_processes_are_killed_fails_the_run_and_the_next_run_continues(
    tmp_path, started, monkeypatch
):
    lab = directory_lab(tmp_path, OBJECTS, **TWO)
    with monkeypatch.context() as patch:
        patch.setattr(processes.Process, "_send", lambda self, call: self.process.kill())
        with pytest.raises(FatalError, match="status -9") as caught:
            prepare(lab.settings(), InlineRunner(2, StageTimes()))
    assert caught.value.code == "run.failed"
    assert caught.value.where.endswith(".tar")
    assert not any(map(is_running, started))
    lab.prepare()
    lab.only()


def test_a_run_that_is_stopped_leaves_no_process(tmp_path, started):
    lab = directory_lab(tmp_path, OBJECTS, **TWO)
    stop = threading.Event()
    with larder_error("run.interrupted"):
        prepare(lab.settings(), InlineRunner(2, Watching(stop.set), stop))
    assert started
    assert not any(map(is_running, started))
    lab.prepare()
    lab.only()


class Bucket:
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
    ("place", "divided"),
    [
        ("s3://bucket/data", True),
        ("memory://data", False),
        ({"url": "s3://bucket/data", "block": "aws-credentials/team"}, False),
    ],
)
def test_what_only_this_process_has_stays_here(place, divided, tmp_path):
    lab = Lab(place, str(tmp_path), tmp_path / "out", {})
    settings = lab.settings()

    assert crew.reachable(settings.dataset.source, settings.cluster.storage) is divided


MOST_BYTES = 64 * 1024


def _run(sent: bytes) -> Any:
    step, job, batch = pickle.loads(sent)
    return step(job, batch, progress=NullProgress(), concurrent_batches=1)


class ElsewhereRunner(InlineRunner):
    def __init__(self) -> None:
        super().__init__(2, StageTimes())
        self.sizes: dict[str, int] = {}

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        sent = [pickle.dumps((step, job, batch)) for batch in batches]
        self.sizes[step.__name__] = max(map(len, sent))
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return list(pool.map(_run, sent))


def test_every_batch_runs_in_another_process(tmp_path):
    lab = directory_lab(tmp_path, images("abc", 20), mirror=True)
    settings, runner = lab.settings(), ElsewhereRunner()
    document = prepare(settings, runner)
    assert document["copied"]["count"] == document["objects"]["count"]
    lab.check()
    verified = verify(VerifySettings(settings), runner)
    assert verified["found"] == 0
    assert set(runner.sizes) == {"copy_objects", "shard_batch", "cache_split", "verify_batch"}
    assert max(runner.sizes.values()) < MOST_BYTES, runner.sizes
