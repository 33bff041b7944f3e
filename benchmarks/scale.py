"""Prepare 5,000,000 invented objects as a flow run, and tell what each stage takes.

::

    python -m benchmarks.scale [--files-scale 1] [--directory DIR] [--json]

The source makes its listing and its objects up, of 1 KB each, so no store's time is in it. A
temporary Prefect server is started. The shards are TFRecord, about 1.1 GB for a million objects,
written to ``--directory``. It is one run, whatever ``--runs`` says.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.growing.invented import Invented
from benchmarks.growing.memory import status_bytes
from benchmarks.growing.names import Names, Picks
from benchmarks.growing.stores import InventingStore
from benchmarks.harness import Figure, arguments, document, say, table
from flows.runs.configure import prefect_ready
from larder.cli.command import Operation
from larder.cli.display import Display
from larder.pipeline.preparing import prepare
from larder.pipeline.run_report import run_lines
from larder.store import Store
from tests.support.runs import between, run_settings

OBJECTS = 5_000_000
MEAN_BYTES = 1_000
_SOURCE = "memory://source/"
_ENOUGH_POLLS = 600


def run_flow(folder: Path, count: int) -> tuple[dict[str, Any], int]:
    """The document of a run of so many objects, and the number of its task runs."""
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


def main(argv: Sequence[str] | None = None) -> None:
    flags = arguments("Prepare invented objects as a flow run.", argv)
    count = max(1, round(OBJECTS * flags.files_scale))
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as name:
        done, task_runs = run_flow(Path(name), count)
    stages = done["stages"]
    rows = [
        (stage, f"{each['seconds']:,.1f}", f"{each['objects']:,}") for stage, each in stages.items()
    ]
    say("\n" + table((f"{count:,} objects", "seconds", "counted"), rows) + "\n")
    memory = peaks()
    shards = done["shards"]
    say(f"{shards['count']} shards, {shards['bytes']:,} bytes; {task_runs} task runs")
    say(", ".join(f"peak of the {name} {size / 1e6:,.0f} MB" for name, size in memory.items()))
    if flags.json:
        figures = [Figure(f"{stage}: seconds", each["seconds"]) for stage, each in stages.items()]
        figures += [Figure(f"{name}: peak bytes", size) for name, size in memory.items()]
        figures.append(Figure("task runs", task_runs))
        print(document("scale", figures))


if __name__ == "__main__":
    main()
