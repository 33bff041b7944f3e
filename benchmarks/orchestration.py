"""The cost of Prefect: runs as flows, beside ``larder prepare`` and a bare flow of one task.

Two jobs, each from nothing to the emitted config: the bundled digits, and 3,000 files of 10 kB with
a mirror. Each is run as a flow with a server of its own, which starts and ends with the run, as a
flow of a server that runs, and by ``larder prepare``. A bare flow has one task, which does nothing,
and Prefect's own ephemeral server, or the server that runs. Every turn is a process of its own from
start to end; the history of Prefect is in a database that exists.

- digits and files: seconds of the flow, beside the bare flow and ``larder prepare``.
- share: what the flow of 3,000 files takes more than ``larder prepare``, of ten minutes.
- task runs of these files.
- seconds for each task run: in batches of 250 kB, the same files have some hundred task runs more.
  What that adds to the flow, less what it adds to ``larder prepare``, for each of them.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import (
    LARDER,
    ROOT,
    SECONDS,
    Figure,
    Measured,
    alternate,
    benchmark_parser,
    run,
    run_command,
    say,
)
from flows.runs.configure import DEFAULTS
from larder.demo.digits import write_digits
from tests.support.servers import free_port, server_process

JOBS = ("digits", "files")
FILES = 3_000
FILE_BYTES = 10_000
SMALL_BATCHES = "cluster.runner.batch_bytes=250 kB"
OWN, RUNNING, WITHOUT = "own server", "running server", "larder prepare"
BARE = "a bare flow of one task"
LONG_SECONDS = 600.0

BARE_FLOW = """
from prefect import flow, task

@task
def nothing():
    pass

@flow
def bare():
    nothing()

bare()
"""


@dataclass(frozen=True, slots=True)
class Lab:
    """A directory to prepare in, and a Prefect server that runs."""

    folder: Path
    port: int

    def clear(self) -> None:
        for made in ("data/local", "out"):
            shutil.rmtree(self.folder / made, ignore_errors=True)
        os.sync()

    def run(self, *command: str, server: bool = False) -> Measured:
        """Run a command in the directory, with a server of its own or the running server."""
        url = {"PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api"} if server else {}
        return run_command(command, cwd=self.folder, env={**os.environ, **url})

    def task_runs(self) -> int:
        """The number of task runs of the last flow run of ``prepare``."""
        named = {"flows": {"name": {"any_": ["prepare"]}}, "sort": "START_TIME_DESC", "limit": 1}
        (last,) = self._ask("/flow_runs/filter", named)
        return int(self._ask("/task_runs/count", {"flow_runs": {"id": {"any_": [last["id"]]}}}))

    def _ask(self, path: str, question: Mapping[str, Any]) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/api{path}", json.dumps(question), headers)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def medians_of(
    lab: Lab, job: Sequence[str], rounds: int, *, bare: bool = False
) -> dict[str, float]:
    """The median seconds of each way to do a job; and, if asked for, of the bare flow."""
    flow, nothing = (sys.executable, "-m", "flows.prepare", *job), (sys.executable, "-c", BARE_FLOW)
    contenders = {
        OWN: lambda: lab.run(*flow),
        RUNNING: lambda: lab.run(*flow, server=True),
        WITHOUT: lambda: lab.run(*LARDER, "prepare", *job),
    }
    if bare:
        contenders[f"{BARE}, {OWN}"] = lambda: lab.run(*nothing)
        contenders[f"{BARE}, {RUNNING}"] = lambda: lab.run(*nothing, server=True)
    medians = alternate(contenders, rounds, before=lab.clear)
    return {name: measured[SECONDS] for name, measured in medians.items()}


def digits(lab: Lab, rounds: int) -> Iterator[Figure]:
    write_digits(lab.folder / "data/source/digits")
    seconds = medians_of(lab, ("--dataset", "digits"), rounds, bare=True)
    for server in (OWN, RUNNING):
        peers = {BARE: seconds[f"{BARE}, {server}"], WITHOUT: seconds[WITHOUT]}
        yield Figure(f"digits, {server}: seconds", seconds[server], peers)


def many_files(lab: Lab, rounds: int, count: int) -> Iterator[Figure]:
    make_files(lab.folder / "source", count)
    job = ("--dataset", "files", "--set", "mirror=true")
    seconds = medians_of(lab, job, rounds)
    name = f"{count:,} files"
    for server in (OWN, RUNNING):
        yield Figure(f"{name}, {server}: seconds", seconds[server], {WITHOUT: seconds[WITHOUT]})
    share = (seconds[OWN] - seconds[WITHOUT]) / LONG_SECONDS
    yield Figure(f"{name}: share of a job of ten minutes", share)
    tasks = _task_runs(lab, job)
    yield Figure(f"{name}: task runs", tasks)

    batches = (*job, "--set", SMALL_BATCHES)
    smaller = medians_of(lab, batches, rounds)
    added = {way: smaller[way] - seconds[way] for way in (RUNNING, WITHOUT)}
    more_tasks = _task_runs(lab, batches) - tasks
    say(f"{SMALL_BATCHES}: {more_tasks} task runs more, {added[RUNNING]:.2f} s more")
    yield Figure("seconds for each task run", (added[RUNNING] - added[WITHOUT]) / more_tasks)


def _task_runs(lab: Lab, job: Sequence[str]) -> int:
    lab.clear()
    lab.run(sys.executable, "-m", "flows.prepare", *job, server=True)
    return lab.task_runs()


def make_files(folder: Path, count: int) -> None:
    random = np.random.default_rng(7)
    for number in range(count):
        path = folder / f"class{number % 10}/{number:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.bytes(FILE_BYTES))


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    count, port, jobs = max(20, round(FILES * flags.files_scale)), free_port(), flags.only or JOBS
    shutil.copytree(ROOT / "configs", folder / "configs")
    for variable in [each for each in os.environ if each.startswith("PREFECT_")]:
        del os.environ[variable]
    os.environ |= {
        **DEFAULTS,
        "PREFECT_HOME": str(folder / "prefect"),
        "PYTHONPATH": str(ROOT),
        "LARDER_SOURCE": str(folder / "source"),
    }
    server = [sys.executable, "-m", "prefect", "server", "start", "--no-ui"]
    server += ["--host", "127.0.0.1", "--port", str(port)]
    with server_process(server, folder / "server.log", port):
        lab = Lab(folder, port)
        if "digits" in jobs:
            yield from digits(lab, flags.rounds)
        if "files" in jobs:
            yield from many_files(lab, flags.rounds, count)


PARSER = benchmark_parser("orchestration", __doc__, rounds=5, cases=JOBS)

if __name__ == "__main__":
    run(PARSER, measure)
