"""Prepare 500,000 invented objects as a flow run, and tell what each stage takes.

The source makes its listing and its objects up, of 1 KB each, so no store's time is in it. A
temporary Prefect server is started. The shards are TFRecord, about 1.1 GB for a million objects,
written to ``--directory``. It is one run, whatever ``--rounds`` says. ``--files-scale 10`` prepares
5,000,000 objects, in a quarter of an hour on two cores.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.growing.invented import Invented
from benchmarks.growing.memory import status_bytes
from benchmarks.growing.names import Names, Picks
from benchmarks.growing.stores import InventingStore
from benchmarks.harness import Figure, benchmark_parser, run, say
from flows.runs.configure import prefect_ready
from larder.cli.command import Operation
from larder.cli.display import Display
from larder.pipeline.preparing import prepare
from larder.pipeline.run_report import run_lines
from larder.store import Store
from tests.support.runs import between, run_settings

OBJECTS = 500_000
MEAN_BYTES = 1_000
_SOURCE = "memory://source/"
_ENOUGH_POLLS = 600


def run_flow(folder: Path, count: int) -> tuple[dict[str, Any], int]:
    """The document of a run of ``count`` objects, and the number of its task runs."""
    invented = Invented(Names(count, "bin"), MEAN_BYTES, Picks())

    def wrapped(store: Store) -> Store:
        return InventingStore(store, invented) if store.url == _SOURCE else store

    settings = run_settings(
        _SOURCE,
        folder / "storage",
        folder / "configs",
        mirror=False,
        labels={"from": "folder"},
        splits={"train": "train/**", "val": "val/**"},
        shards={"format": "tfrecord"},
    )
    cluster = settings.cluster
    operation = Operation(
        settings.batches_at_once,
        partial(prepare, settings),
        run_lines,
        run_lines,
        cluster.runner,
        cluster.storage,
        cluster.copy_.memory,
    )
    with Display() as display, prefect_ready(display) as ready, between(wrapped):
        from flows.prepare import prepare as flow
        from flows.runs.flow_run import call_flow

        parameters = {"dataset": "d", "cluster": "c"}
        named = ready()
        done = call_flow(flow, parameters, operation, operation.compose, display, named=named)
        return {**done, "stages": display.stages()}, count_task_runs()


def count_task_runs() -> int:
    """The task runs on the server, which come to it as events: once there are no more."""
    from prefect import get_client

    counts = [-1, 0]
    with get_client(sync_client=True) as client:
        for _ in range(_ENOUGH_POLLS):
            runs = client.request("POST", "/task_runs/count", json={})
            counts.append(int(runs.json()))
            if len(set(counts[-5:])) == 1 and counts[-1]:
                break
            time.sleep(1)
    return counts[-1]


def peaks() -> dict[str, float]:
    """The most memory that this process and the server ever had, in bytes."""
    mine = os.getpid()
    found = {"run": status_bytes("VmHWM")}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == mine and "flows.runs.server" in (process / "cmdline").read_text():
                found["server"] = status_bytes("VmHWM", process.name)
    return found


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    count = max(1, round(OBJECTS * flags.files_scale))
    done, task_runs = run_flow(folder, count)
    shards = done["shards"]
    say(f"{count:,} objects: {shards['count']} shards, {shards['bytes']:,} bytes")
    for stage, each in done["stages"].items():
        yield Figure(f"{stage}: seconds", each["seconds"])
    for process, size_bytes in peaks().items():
        yield Figure(f"{process}: peak bytes", size_bytes)
    yield Figure("task runs", task_runs)


PARSER = benchmark_parser("scale", __doc__, rounds=1)

if __name__ == "__main__":
    run(PARSER, measure)
