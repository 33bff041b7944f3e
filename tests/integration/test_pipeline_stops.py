"""Runs of every kind that are stopped at any write, and the runs after them."""

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from costs_lab import blob, blobs, counted
from pipeline_lab import DOCUMENT, Lab, directory_lab, images, opened
from required import at_night, nightly

from larder.copy.copy_receipts import find_receipts, receipt_rows
from larder.copy.copy_record import read_record, record_rows
from larder.disk import scratch
from larder.errors import FatalError
from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import prepare
from larder.progress import StageTimes
from larder.segments import shard
from larder.segments.mirror import PLACE
from larder.segments.shard_receipts import read_receipt
from larder.store.base import Store
from larder.store.delegate import DelegatingStore
from larder.versions.leases import RUN, config_name, read_leases
from larder.versions.tags import TAG, read_tag
from tests.support.memory import forget
from tests.support.runs import between
from tests.support.stores import Recorder, Stop, Stopped, StoppingStore, UnconditionalStore, keys_of

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"validation": "d/**", "train": "**"},
    "shards": {"bytes": 10_000},
    "validate": "decode",
    "cache": {"records": "encoded"},
    "on_bad_sample": "skip",
    "cluster": {"runner": {"workers": 2, "batch_bytes": 12_000}, "copy": {"concurrency": 3}},
    "mirror": True,
}
OTHER_LIMITS = {"runner": {"workers": 1, "batch_bytes": 25_000}, "copy": {"concurrency": 1}}
OBJECTS = blobs(32, 700)
KEYS = sorted(OBJECTS)
# Two that are left out: one of several in its shard, one alone in its batch.
BAD = {"a/01.png": b"no image", "b/03.png": b"none either" * 1500}

Run = Callable[..., DOCUMENT]


def grow(lab: Lab) -> None:
    """Samples of both splits are added, changed and removed, and there is a class more."""
    lab.remove(KEYS[3], KEYS[30])
    lab.add({KEYS[11]: blob("other", 700), **blobs(3, 700, first=32, classes="cde")})


def before_building(lab: Lab, run: Run) -> None:
    lab.add(images() | BAD)


def before_growing(lab: Lab, run: Run) -> None:
    lab.add(OBJECTS)
    run()
    grow(lab)


def before_folding(lab: Lab, run: Run) -> None:
    """There are sixteen segments."""
    lab.add(OBJECTS)
    run()
    for number in range(15):
        lab.add(blobs(1, 700, first=100 + number))
        assert run()["segments"]["total"] == number + 2
    grow(lab)


def before_compacting(lab: Lab, run: Run) -> None:
    lab.add(OBJECTS)
    run()
    lab.remove(KEYS[3], KEYS[30])
    lab.add({KEYS[11]: blob("other", 700)})
    run(growth={"removals": "omit"})
    lab.add(blobs(3, 700, first=32, classes="cde"))
    assert run(growth={"removals": "omit"})["segments"]["total"] == 3


def before_caching(lab: Lab, run: Run) -> None:
    lab.add(OBJECTS)
    run(cache=None)
    grow(lab)
    assert run(cache=None)["segments"]["total"] == 2


SCENES: dict[str, tuple[Callable[[Lab, Run], None], int, int]] = {
    "build": (before_building, 1, 1),
    "grow": (before_growing, 2, 1),
    "fold": (before_folding, 2, 1),
    "compact": (before_compacting, 1, 1),
    "cache": (before_caching, 2, 0),
}
"""What happens before the run that is stopped; the segments after it, and how many are new."""


@pytest.fixture
def lab(kind: str, tmp_path: Path) -> Iterator[Lab]:
    """An empty source and storage: buckets that keep or ignore conditions, or directories."""
    if kind == "directory":
        yield Lab(str(tmp_path / "source"), str(tmp_path / "local"), tmp_path / "out", FIELDS)
        return
    name = uuid.uuid4().hex
    yield Lab(f"memory://{name}-source", f"s3://memory-{name}", tmp_path / "out", FIELDS)
    forget(name)
    forget(f"{name}-source")


@contextmanager
def copied(lab: Lab) -> Iterator[Lab]:
    """Another storage with the same content, until the block ends, and the same source."""
    name = uuid.uuid4().hex
    is_bucket = str(lab.storage).startswith("s3:")
    storage = f"s3://memory-{name}" if is_bucket else str(lab.output.with_name(name))
    other = replace(lab, storage=storage)
    with lab.opened_root() as theirs, other.opened_root() as ours:
        for key in keys_of(theirs):
            ours.put(key, theirs.get(key))
    yield other
    forget(name)


def tagged(lab: Lab) -> str | None:
    with lab.opened_root() as root:
        tag = read_tag(root, TAG)
    return tag and tag.version


def finished_work(root: Store) -> set[str]:
    """Keys of the shards and cache files of which there are receipts."""
    found = set()
    with scratch() as folder:
        for key in keys_of(root, "segments/"):
            _, segment, kind, *rest = key.split("/")
            if kind == "work" and rest[0] == "caches":
                found.add(json.loads(root.get(key))["path"])
            elif kind == "work" and rest[0] == "shards":
                made = read_receipt(root, key, folder).shard
                shards = f"segments/{segment}/shards/{made.split}"
                found |= {f"{shards}/{file.name}" for file in made.files}
    return found


def copied_now(lab: Lab, root: Store) -> set[str]:
    """Keys of the mirror of which there are receipts, made from what the source has now."""
    with opened(str(lab.source)) as source:
        there = {info.key: info.etag for page in source.list() for info in page}
    receipts = receipt_rows(root, find_receipts(root, PLACE))
    record = record_rows(root, PLACE, read_record(root, PLACE))
    return {
        f"mirror/{key}"
        for batch in chain(receipts, record)
        for key, etag in zip(*(batch.column(n).to_pylist() for n in ("key", "etag")), strict=True)
        if there.get(key) == etag
    }


CASES = [
    ("build", "kept", 1),
    ("grow", "kept", 1),
    ("fold", "kept", 7),
    ("compact", "directory", 7),
    ("compact", "ignored", 7),
    ("cache", "kept", 1),
    *at_night(
        ("grow", "ignored", 5),
        ("grow", "directory", 4),
        ("fold", "directory", 23),
        ("compact", "kept", 3),
        ("cache", "directory", 4),
    ),
]
"""With every n-th write, counted from another one each."""


@pytest.mark.parametrize(("scene", "kind", "step"), CASES)
def test_a_run_stopped_at_any_write_publishes_nothing_in_part_and_can_be_continued(
    lab, scene, kind, step
):
    before, segments, new_segments = SCENES[scene]

    def wrap(store: Store) -> Store:
        return UnconditionalStore(store) if kind == "ignored" else store

    def run(**fields: Any) -> DOCUMENT:
        with between(wrap):
            return lab.prepare(**fields)

    def stopped(at: Lab, stop: Stop) -> DOCUMENT | None:
        with between(lambda store: StoppingStore(wrap(store), stop)), suppress(Stopped):
            return at.compact() if scene == "compact" else at.prepare()
        return None

    before(lab, run)
    old, first = lab.check(), tagged(lab)
    with copied(lab) as whole:
        undisturbed = Stop()
        document = stopped(whole, undisturbed)
        assert document is not None
        assert document["segments"]["total"] == segments
        assert document["segments"]["new"] == new_segments
        new = document["version"]
        expected = whole.check()
        assert set(expected) == {*old, new}
    writes = len(undisturbed.writes)
    stops = range(0, writes, step) if step == 1 else range(step // 2, writes, step)
    for after in sorted({*stops[:: 1 if nightly() else 7], stops[-1]}):
        with copied(lab) as cut:
            stop = Stop(after)
            made = stopped(cut, stop)
            where = f"stopped at {stop.writes[after]}, after {after} writes"
            assert made is None, where
            found = cut.check()
            assert set(old) <= set(found) <= {*old, new}, where
            assert tagged(cut) in (first, new), where
            for version, published in old.items():
                assert found[version].shards == published.shards, where
            with cut.opened_root() as root:
                finished = finished_work(root) | copied_now(cut, root)
            # Other limits cut other batches: receipts of both overlap.
            limits = OTHER_LIMITS if after % 2 else FIELDS["cluster"]
            command = cut.compact if scene == "compact" else cut.prepare
            again = counted(cut, command, cluster=limits)
            assert not finished & set(again.wrote("shards", "mirror", "caches")), where
            for same in ("version", "digest", "inputs"):
                assert again.document[same] == document[same], where
            found = cut.check()
            assert set(found) == {*old, new}, where
            assert found[new].shards == expected[new].shards, where
            assert found[new].samples == expected[new].samples, where
            assert tagged(cut) == new, where
            idle = counted(cut, command)
            assert (idle.document["status"], idle.wrote()) == ("reused", []), where


def test_a_batch_of_shards_that_is_retried_makes_none_again(tmp_path):
    class Twice(InlineRunner):
        def map(self, *arguments: Any, **named: Any) -> Any:
            super().map(*arguments, **named)
            return super().map(*arguments, **named)

    lab = directory_lab(tmp_path, cache=None)
    with between(recorder := Recorder()):
        document = prepare(lab.settings(), Twice(1, StageTimes()))
    made = [key for key in recorder.keys("commit") if key.endswith(".tar")]
    assert len(made) == len(set(made)) == document["shards"]["count"]
    lab.check()


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
    assert list(lab.folder.glob("segments/*/shards/**/*.tar")), "it was made all the same"
    assert list(lab.folder.glob("segments/*/work/shards/**/*.parquet")) == []


class Interrupted(DelegatingStore):
    """Interrupts the run once, around the call that is due since the run's lease was written."""

    def __init__(self, inner: Store, calls: list[str], due: int, *, late: bool) -> None:
        super().__init__(inner)
        self.calls, self.due, self.late = calls, due, late

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        if self.calls or (method == "put" and key.startswith("leases/run-")):
            self.calls.append(method)
        ends = method == "delete" and key.startswith("leases/run-")
        due = len(self.calls) == self.due and not ends
        if due and not self.late:
            raise KeyboardInterrupt
        try:
            return call(**options)
        finally:
            if due:
                raise KeyboardInterrupt


@pytest.mark.parametrize("late", [False, True])
def test_a_run_that_ends_before_its_build_leaves_no_lease(tmp_path, late):
    """Whatever it was doing since it took the lease."""
    lab = directory_lab(tmp_path, mirror=True)

    def no_server(execute: object) -> DOCUMENT:
        raise FatalError("run.server", "it does not start")

    for due in count(1):
        calls: list[str] = []
        wrap = partial(Interrupted, calls=calls, due=due, late=late)
        with between(wrap), pytest.raises((KeyboardInterrupt, FatalError)) as ended:
            prepare(lab.settings(), start=no_server)
        with lab.opened_root() as root:
            assert not list(read_leases(root, RUN)), calls
        if ended.type is FatalError:
            break
    assert (calls[0], calls[-1], "upload" in calls) == ("put", "delete", True)
    lab.prepare()
    lab.only()


def test_the_lease_of_a_run_ends_with_its_build_and_its_config_has_one(tmp_path):
    lab = directory_lab(tmp_path)

    def start(execute: Callable[..., DOCUMENT]) -> DOCUMENT:
        with lab.opened_root() as root:
            assert len(list(read_leases(root, RUN))) == 1
            document = execute(InlineRunner(1, StageTimes()))
            config = config_name("c", document["version"])
            assert [each.name for each in read_leases(root)] == [config]
        return document

    assert prepare(lab.settings(), start=start)["status"] == "built"
