"""Growths, foldings and compactions that are stopped at any write, and the runs after them."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from costs_lab import Costs, blob, blobs, counted
from pipeline_lab import DOCUMENT, Lab, opened
from required import at_night, nightly

from larder.copy.receipts import find_receipts, receipt_rows
from larder.copy.record import read_record, record_rows
from larder.disk import scratch
from larder.segments.mirror import PLACE
from larder.segments.receipts import read_receipt
from larder.store.base import Store
from tests.support.memory import forget
from tests.support.runs import between
from tests.support.stores import Stop, Stopped, StoppingStore, UnconditionalStore

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"validation": "d/**", "train": "**"},
    "shards": {"bytes": 10_000},
    "cache": {"records": "encoded"},
    "cluster": {"runner": {"workers": 2, "batch_bytes": 12_000}, "copy": {"concurrency": 3}},
    "mirror": True,
}
OTHER_LIMITS = {"runner": {"workers": 1, "batch_bytes": 25_000}, "copy": {"concurrency": 1}}
OBJECTS = blobs(32, 700)
KEYS = sorted(OBJECTS)


@dataclass(frozen=True)
class Place:
    """A source and a storage, which is copied to begin with the same again and again.

    ``kind``: a bucket that keeps the conditions of writes, one that ignores them, or a directory.
    """

    kind: str
    folder: Path
    source: str
    storage: str

    @staticmethod
    def make(kind: str, folder: Path) -> Place:
        name = uuid.uuid4().hex
        if kind == "directory":
            return Place(kind, folder, str(folder / f"{name}-source"), str(folder / name))
        return Place(kind, folder, f"memory://{name}-source", f"s3://memory-{name}")

    @property
    def lab(self) -> Lab:
        return Lab(self.source, self.storage, self.folder / "out", FIELDS)

    @contextmanager
    def copied(self) -> Iterator[Place]:
        """Another storage with the same in it, and the same source, until the block ends."""
        name = uuid.uuid4().hex
        if self.kind == "directory":
            other = replace(self, storage=str(self.folder / name))
            shutil.copytree(self.storage, other.storage)
            yield other
            shutil.rmtree(other.storage)
            return
        other = replace(self, storage=f"s3://memory-{name}")
        with self.lab.opened_root() as theirs, other.lab.opened_root() as ours:
            for page in theirs.list():
                for info in page:
                    ours.put(info.key, theirs.get(info.key))
        yield other
        forget(name)

    def run(self, compact: bool = False, **fields: Any) -> DOCUMENT:
        with between(self.wrap):
            return self._prepare(compact, **fields)

    def counted(self, compact: bool = False, **fields: Any) -> Costs:
        return counted(self.lab, lambda: self._prepare(compact, **fields))

    def stopped(self, after: int | None, compact: bool = False) -> tuple[DOCUMENT | None, Stop]:
        stop = Stop(after)
        stopping = between(lambda store: StoppingStore(self.wrap(store), stop))
        with stopping, suppress(Stopped):
            return self._prepare(compact), stop
        return None, stop

    def wrap(self, store: Store) -> Store:
        return UnconditionalStore(store) if self.kind == "ignored" else store

    def _prepare(self, compact: bool = False, **fields: Any) -> DOCUMENT:
        return self.lab.compact(**fields) if compact else self.lab.prepare(**fields)


def grow(place: Place) -> None:
    """Samples of both splits are added, changed and removed, and there is a class more."""
    place.lab.remove(KEYS[3], KEYS[30])
    place.lab.add({KEYS[11]: blob("other", 700), **blobs(3, 700, first=32, classes="cde")})


def before_growing(place: Place) -> None:
    place.lab.add(OBJECTS)
    place.run()


def before_folding(place: Place) -> None:
    """There are sixteen segments."""
    before_growing(place)
    for number in range(15):
        place.lab.add(blobs(1, 700, first=100 + number))
        assert place.run()["segments"]["total"] == number + 2


def before_compacting(place: Place) -> None:
    """Three segments, one of which omits samples."""
    before_growing(place)
    place.lab.remove(KEYS[3], KEYS[30])
    place.lab.add({KEYS[11]: blob("other", 700)})
    assert place.run(growth={"removals": "omit"})["segments"]["total"] == 2
    place.lab.add(blobs(3, 700, first=32, classes="cde"))
    assert place.run(growth={"removals": "omit"})["segments"]["total"] == 3


def before_caching(place: Place) -> None:
    """Two segments without caches."""
    place.lab.add(OBJECTS)
    place.run(cache=None)
    grow(place)
    assert place.run(cache=None)["segments"]["total"] == 2


def nothing(place: Place) -> None:
    pass


@dataclass(frozen=True)
class Scene:
    """What happens before the run that is stopped, what changes then, and what run it is."""

    before: Callable[[Place], None]
    change: Callable[[Place], None]
    compact: bool
    segments: int
    new: int = 1


SCENES = {
    "grow": Scene(before_growing, grow, False, 2),
    "fold": Scene(before_folding, grow, False, 2),
    "compact": Scene(before_compacting, nothing, True, 1),
    "cache": Scene(before_caching, nothing, False, 2, 0),
}


@pytest.fixture
def place(kind: str, tmp_path: Path) -> Iterator[Place]:
    made = Place.make(kind, tmp_path)
    yield made
    if kind != "directory":
        forget(made.storage.removeprefix("s3://memory-"))
        forget(made.source.removeprefix("memory://"))


def finished_work(root: Store) -> set[str]:
    """Keys of the files of which there are receipts: copies, shards and cache files."""
    found = set()
    with scratch() as folder:
        for key in [info.key for page in root.list("segments/") for info in page]:
            _, segment, kind, *rest = key.split("/")
            if kind != "work":
                continue
            if rest[0] == "caches":
                found.add(json.loads(root.get(key))["path"])
            elif rest[0] == "shards":
                shard = read_receipt(root, key, folder).shard
                shards = f"segments/{segment}/shards/{shard.split}"
                found |= {f"{shards}/{file.name}" for file in shard.files}
    return found


def copied_now(place: Place, root: Store) -> set[str]:
    """Keys of the mirror of which there are receipts, made from what the source has now."""
    with opened(place.source) as source:
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
    place, scene, step
):
    drama = SCENES[scene]
    drama.before(place)
    drama.change(place)
    old = place.lab.check()
    first = place.lab.tag.version
    with place.copied() as whole:
        document, stop = whole.stopped(None, drama.compact)
        assert document is not None
        assert document["segments"]["total"] == drama.segments
        assert document["segments"]["new"] == drama.new
        new = document["version"]
        expected = whole.lab.check()
        assert set(expected) == {*old, new}
    writes = len(stop.writes)
    stops = range(0, writes, step) if step == 1 else range(step // 2, writes, step)
    for after in sorted({*stops[:: 1 if nightly() else 7], stops[-1]}):
        with place.copied() as cut:
            made, stop = cut.stopped(after, drama.compact)
            where = f"stopped at {stop.writes[after]}, after {after} writes"
            assert made is None, where
            found = cut.lab.check()
            assert set(old) <= set(found) <= {*old, new}, where
            assert cut.lab.tag.version in (first, new), where
            for version, published in old.items():
                assert found[version].shards == published.shards, where
            with cut.lab.opened_root() as root:
                finished = finished_work(root) | copied_now(cut, root)
            # Other limits cut other batches: receipts of both overlap.
            limits = OTHER_LIMITS if after % 2 else FIELDS["cluster"]
            again = cut.counted(drama.compact, cluster=limits)
            assert not finished & set(again.wrote("shards", "mirror", "caches")), where
            for same in ("version", "digest", "inputs"):
                assert again.document[same] == document[same], where
            found = cut.lab.check()
            assert set(found) == {*old, new}, where
            assert found[new].shards == expected[new].shards, where
            assert found[new].samples == expected[new].samples, where
            assert cut.lab.tag.version == new, where
            idle = cut.counted(drama.compact)
            assert (idle.document["status"], idle.wrote()) == ("reused", []), where
