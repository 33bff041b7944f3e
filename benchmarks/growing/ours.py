"""Runs of Larder, and what they took."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from benchmarks.growing.body import Body
from benchmarks.growing.memory import status_bytes, watched
from benchmarks.growing.names import Picks
from benchmarks.growing.stores import CountingStore, InventingStore, Moved, Tally
from larder.pipeline.preparing import prepare
from larder.store import Store, open_store
from tests.support.runs import between, forget_manifests, run_settings

_SOURCE = "memory://source/"


@dataclass(frozen=True, slots=True)
class Measured:
    """What one turn of one contender took; None where it is not known.

    Attributes:
        seconds: Without the start of the process, and without imports.
        cpu_seconds: Of all threads, in the same time: unlike seconds, hardly depends on what else
            the machine does.
        peak_bytes: The most memory that its process had, with the pages of files that it maps.
        own_peak_bytes: The same without those.
        written_bytes: What it wrote, apart from manifests.
        read_bytes: What it read.
        manifest_bytes: Manifests that it wrote, if it tells them apart.
        segments: Segments of the version.
        moved: All of it, by what it is.
        stages: Seconds by stage.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: float
    own_peak_bytes: float
    written_bytes: float
    read_bytes: float
    manifest_bytes: float | None = None
    segments: int | None = None
    moved: Moved = field(default_factory=Moved)
    stages: Mapping[str, float] = field(default_factory=dict)


def prepare_once(
    body: Body, fields: Mapping[str, Any], storage: str, picks: Picks
) -> Mapping[str, Any]:
    """Prepare the body as it is after a change, in this process alone; returns a `Measured` as a
    dict.

    Real files are already as they are after the change.
    """
    tally = Tally()
    place = Path(storage)
    written = open_store(str(place / "storage")).url

    def wrapped(store: Store) -> Store:
        if store.url == _SOURCE:
            store = InventingStore(store, body.invented(picks))
        return CountingStore(store, tally, source=not store.url.startswith(written))

    source = body.files if body.real else _SOURCE
    every = {
        "mirror": False,
        "labels": {"from": "folder"},
        "splits": {"train": "train/**", "val": "val/**"},
        **fields,
    }
    shards = {"bytes": body.shard_bytes, **every.pop("shards", {})}
    settings = run_settings(
        source,
        place / "storage",
        place / "configs",
        shards=shards,
        cluster={"runner": {"workers": 1}},  # what other processes move is not counted
        **every,
    )
    _import_all(every)
    with watched() as peak, between(wrapped):
        start, cpu_start = perf_counter(), process_time()
        document = prepare(settings)
        seconds, cpu_seconds = perf_counter() - start, process_time() - cpu_start
    moved = tally.moved()
    return asdict(
        Measured(
            seconds=seconds,
            cpu_seconds=cpu_seconds,
            peak_bytes=status_bytes("VmHWM"),
            own_peak_bytes=peak.bytes,
            written_bytes=sum(moved.written.values()) - moved.written.get("manifests", 0),
            read_bytes=sum(moved.read.values()),
            manifest_bytes=moved.written.get("manifests", 0),
            segments=document["segments"]["total"],
            moved=moved,
            stages={name: stage["seconds"] for name, stage in document["stages"].items()},
        )
    )


def _import_all(fields: Mapping[str, Any]) -> None:
    """Build and grow a tiny dataset: modules are imported when they are first used."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings = run_settings(folder / "source", folder / "made", folder / "out", **fields)
        for key in ("train/n0/a.bin", "train/n0/b.bin"):
            path = folder / "source" / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"1")
            prepare(settings)
    forget_manifests()


def prepare_daily(
    body: Body, fields: Mapping[str, Any], storage: str, spare: Sequence[tuple[str, str]]
) -> list[Mapping[str, Any]]:
    """A run a day, each with one file more, in this process; returns a `Measured` for each.

    ``spare`` has for each day a file to rename, and where to.
    """
    days = []
    for old, new in spare:
        Path(old).rename(new)
        forget_manifests()
        days.append(prepare_once(body, fields, storage, Picks()))
    return days
