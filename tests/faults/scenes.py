"""Scenes of the matrix: a state before, a command, and what has to be there at the end."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from catalog_lab import drop_all, place_of
from copy_lab import CopyLab, contents
from pipeline_lab import Lab, objects_of, opened, write
from verify_lab import verified

import larder
from larder import disk
from larder.catalog.cleaning import CleanSettings, clean
from larder.catalog.due import read_policy
from larder.copy.copying import copy
from larder.copy.pruning import PruneSettings, prune
from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import prepare
from larder.progress import StageTimes
from larder.store import open_store
from larder.store.local import write as local
from larder.verify.verifying import VerifySettings, verify
from tests.support.runs import forget_manifests

OBJECTS = {f"{'ab'[n % 2]}/{n:02}.txt": b"%d" % n * (200 + n) for n in range(12)}
NEW = {"a/00.txt": b"changed" * 50, "a/98.txt": b"new" * 99}
OLD = ("b/01.txt", "a/04.txt")
GROWN = {key: data for key, data in (OBJECTS | NEW).items() if key not in OLD}
STOP = threading.Event()
"""Set by a signal, as in a command."""


@dataclass(frozen=True)
class Site:
    """The URL of all objects of a cell, and a folder of this machine."""

    url: str
    here: Path

    @property
    def lab(self) -> Lab:
        fields = {
            "labels": {"from": "folder"},
            "splits": {"train": "a/**", "validation": "b/**"},
            "shards": {"bytes": 3_000},
            "cache": {"records": "encoded"},
            "validate": "none",
            "mirror": True,
            "cluster": {"runner": {"workers": 1}},
        }
        return Lab(f"{self.url}/source", f"{self.url}/local", self.here / "out", fields)

    @property
    def copies(self) -> CopyLab:
        return CopyLab(f"{self.url}/source", f"{self.url}/copy", {})

    def change(self) -> None:
        """Let one sample more be there, one be changed, and two be gone."""
        write(f"{self.url}/source", NEW)
        with opened(f"{self.url}/source") as store:
            for key in OLD:
                store.delete(key)


@dataclass(frozen=True)
class Scene:
    """A command: ``before`` makes the state for ``run``, and ``check`` asserts the state after it.

    The value of ``run`` has to equal ``gives``.
    """

    before: Callable[[Site], object]
    run: Callable[[Site], object]
    check: Callable[[Site], object]
    gives: object = None


def _source(site: Site) -> None:
    write(f"{site.url}/source", OBJECTS)


def _prepared(site: Site) -> None:
    _source(site)
    site.lab.prepare()


def _grown(site: Site) -> None:
    _prepared(site)
    site.change()
    site.lab.prepare()


def _cleanable(site: Site) -> None:
    _grown(site)
    write(f"{site.url}/source", {"a/99.txt": b"newer"})
    site.lab.prepare()
    drop_all(site.lab)


def _damaged(site: Site) -> None:
    """A shard with another bit, and no index."""
    _prepared(site)
    with site.lab.opened_root() as root:
        keys = [info.key for page in root.list("segments/") for info in page]
        shard = next(key for key in keys if key.endswith(".tar"))
        data = bytearray(root.get(shard))
        data[1600] ^= 1
        root.put(shard, bytes(data))
        root.delete(next(key for key in keys if key.endswith(".npz")))


def _copied(site: Site) -> None:
    _source(site)
    site.copies.copy()


def _runner() -> InlineRunner:
    return InlineRunner(1, StageTimes(), STOP)


def _prepare(site: Site) -> None:
    prepare(site.lab.settings(), _runner())


def _compact(site: Site) -> None:
    prepare(site.lab.settings()._replace(compact=True), _runner())


def _copy(site: Site) -> None:
    copy(site.copies.settings(), _runner())


def _repair(site: Site) -> None:
    verify(VerifySettings(site.lab.settings(), repair=True), _runner())


def _clean(site: Site) -> None:
    policy = read_policy(1, "0h", "0h")
    clean(CleanSettings(place_of(site.lab), policy), _runner())


def _prune(site: Site) -> None:
    prune(PruneSettings(site.copies.settings(), 2), _runner())


def _published(samples: Mapping[str, bytes]) -> Callable[[Site], object]:
    """Verify calls everything intact, and an independent reader finds these samples."""

    def check(site: Site) -> None:
        document = verified(site.lab)
        assert document["status"] == "intact", document
        assert objects_of(site.lab.newest()) == samples

    return check


def _there(samples: Mapping[str, bytes]) -> Callable[[Site], object]:
    def check(site: Site) -> None:
        assert contents(site.copies.storage) == samples

    return check


def _clean_checked(site: Site) -> None:
    _published(GROWN | {"a/99.txt": b"newer"})(site)
    assert len(site.lab.check()) == 1


def _epoch(site: Site) -> dict[str, bytes]:
    """One epoch from shards, and one from the cache, which must have the same samples."""
    data = larder.open(f"{site.lab.root.rstrip('/')}@latest", cache_dir=site.here / "cache")
    found: dict[str, bytes] = {}
    for split in data.splits:
        for batch in data.loader(split, batch_size=2, shuffle=True, workers=0):
            for key, text in zip(batch["key"], batch["txt"], strict=True):
                found[f"{key}.txt"] = bytes(text)
        for sample in data.samples(split):
            assert sample.parts["txt"] == found[f"{sample.key}.txt"]
    return found


def _cached(site: Site) -> list[int]:
    storage, copies = f"{site.url}/layer", site.here / "cache"
    train = larder.cache_train_dataset("d", "v1", storage=storage, cache_dir=copies)
    return [int(each) for each in train(lambda: range(10))()]


def _nothing(_: Site) -> None:
    pass


SCENES = {
    "prepare": Scene(_source, _prepare, _published(OBJECTS)),
    "grow": Scene(lambda site: (_prepared(site), site.change()), _prepare, _published(GROWN)),
    "compact": Scene(_grown, _compact, _published(GROWN)),
    "copy": Scene(_source, _copy, _there(OBJECTS)),
    "prune": Scene(
        lambda site: (_copied(site), site.change(), site.copies.copy()), _prune, _there(GROWN)
    ),
    "repair": Scene(_damaged, _repair, _published(OBJECTS)),
    "clean": Scene(_cleanable, _clean, _clean_checked),
    "epoch": Scene(_prepared, _epoch, _published(OBJECTS), OBJECTS),
    "function": Scene(_nothing, _cached, _nothing, list(range(10))),
}


def run(scene: str, site: Site) -> object:
    """Play a scene as a new process would; what it gives has to be right."""
    forget_manifests()
    disk._searched.clear()
    local._unsynced.clear()
    given = SCENES[scene].run(site)
    assert given == SCENES[scene].gives
    return given


def drafts(folder: Path) -> list[Path]:
    """Temporary files and folders below a folder, but for the locks of directories."""
    found = folder.rglob(f"{disk.TEMPORARY_PREFIX}*")
    return [path for path in found if path.name != ".larder-tmp-lock"]


def sweep(folder: Path) -> None:
    """Remove drafts as a clean does a day later."""
    for path in drafts(folder):
        for each in (*path.rglob("*"), path):
            os.utime(each, (0, 0))
    disk.remove_abandoned_below(folder, [folder])


def keys(url: str) -> set[str]:
    return {info.key for page in open_store(url).list() for info in page}
