"""What Prefect costs: runs as flows, beside ``larder prepare`` and a bare flow of one task.

::

    python -m benchmarks.orchestration [--runs 5] [--files-scale 1] [--only JOB] [--json]

Two jobs, each from nothing to the emitted config: the bundled digits, and 3,000 files of 10 kB with
a mirror. Each is run as a flow with a server of its own, which starts and ends with the run, as a
flow of a server that runs, and by ``larder prepare``. A bare flow has one task, which does nothing,
and Prefect's own ephemeral server, or the server that runs. Every turn is a process of its own from
start to end; the history of Prefect is in a database that exists.

- digits: at most 3 seconds more than the bare flow.
- share: what the flow of 3,000 files takes more than ``larder prepare``, of ten minutes: at most 5
  percent.
- task runs: at most one for each GB, and ten.
- seconds for each task run: in batches of 250 kB, the same files have some hundred task runs more.
  What that adds to the flow, less what it adds to ``larder prepare``, for each of them.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.harness import Figure, alternate, arguments_parser, document, say, settle, table
from flows.runs.configure import DEFAULTS
from larder.demo.digits import write_digits
from tests.support.servers import free_port, server_process

ROOT = Path(__file__).parents[1]
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
        settle()

    def run(self, *command: str, server: bool = False) -> Mapping[str, float]:
        """Run a Python program in the directory; the seconds that it took."""
        url = {"PREFECT_API_URL": f"http://127.0.0.1:{self.port}/api"} if server else {}
        start = perf_counter()
        done = subprocess.run(
            [sys.executable, *command],
            cwd=self.folder,
            env={**os.environ, **url},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = perf_counter() - start
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr[-2_000:]}")
        return {"seconds": seconds}

    def task_runs(self) -> int:
        """The number of task runs of the last flow run of ``prepare``."""
        named = {"flows": {"name": {"any_": ["prepare"]}}, "sort": "START_TIME_DESC", "limit": 1}
        (run,) = self._ask("/flow_runs/filter", named)
        return int(self._ask("/task_runs/count", {"flow_runs": {"id": {"any_": [run["id"]]}}}))

    def _ask(self, path: str, question: Mapping[str, Any]) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        try:
            headers = {"Content-Type": "application/json"}
            connection.request("POST", f"/api{path}", json.dumps(question), headers)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


def measure(lab: Lab, job: Sequence[str], runs: int, *, bare: bool = False) -> dict[str, float]:
    """The median seconds of each way to do a job; and, if asked for, of the bare flow."""
    flow, library = ("-m", "flows.prepare", *job), ("-m", "larder.cli.main", "prepare", *job)
    contenders = {
        OWN: lambda: lab.run(*flow),
        RUNNING: lambda: lab.run(*flow, server=True),
        WITHOUT: lambda: lab.run(*library),
    }
    if bare:
        contenders[f"{BARE}, {OWN}"] = lambda: lab.run("-c", BARE_FLOW)
        contenders[f"{BARE}, {RUNNING}"] = lambda: lab.run("-c", BARE_FLOW, server=True)
    medians = alternate(contenders, runs, before=lab.clear)
    return {name: measured["seconds"] for name, measured in medians.items()}


def digits(lab: Lab, runs: int) -> list[Figure]:
    found = measure(lab, ("--dataset", "digits"), runs, bare=True)
    figures = []
    for server in (OWN, RUNNING):
        peer = found[f"{BARE}, {server}"]
        peers = {BARE: peer, WITHOUT: found[WITHOUT]}
        name = f"digits, {server}: seconds"
        figures.append(Figure(name, found[server], peers, limit=peer + 3))
    return figures


def many_files(lab: Lab, runs: int, count: int) -> list[Figure]:
    job = ("--dataset", "files", "--set", "mirror=true")
    found = measure(lab, job, runs)
    name = f"{count:,} files"
    figures = [
        Figure(f"{name}, {server}: seconds", found[server], {WITHOUT: found[WITHOUT]})
        for server in (OWN, RUNNING)
    ]
    share = (found[OWN] - found[WITHOUT]) / LONG_SECONDS
    figures.append(Figure(f"{name}: share of a job of ten minutes", share, limit=0.05))
    tasks = _task_runs(lab, job)
    most = count * FILE_BYTES / 1e9 + 10
    figures.append(Figure(f"{name}: task runs", tasks, limit=most))

    batches = (*job, "--set", SMALL_BATCHES)
    smaller = measure(lab, batches, runs)
    added = {way: smaller[way] - found[way] for way in (RUNNING, WITHOUT)}
    more_tasks = _task_runs(lab, batches) - tasks
    say(f"{SMALL_BATCHES}: {more_tasks} task runs more, {added[RUNNING]:.2f} s more")
    each = (added[RUNNING] - added[WITHOUT]) / more_tasks
    return [*figures, Figure("seconds for each task run", each)]


def _task_runs(lab: Lab, job: Sequence[str]) -> int:
    lab.clear()
    lab.run("-m", "flows.prepare", *job, server=True)
    return lab.task_runs()


def make_files(folder: Path, count: int) -> None:
    random = np.random.default_rng(7)
    for number in range(count):
        path = folder / f"class{number % 10}/{number:05}.bin"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(random.bytes(FILE_BYTES))


def run(lab: Lab, runs: int, count: int, jobs: Sequence[str]) -> list[Figure]:
    found = []
    if "digits" in jobs:
        write_digits(lab.folder / "data/source/digits")
        found += digits(lab, runs)
    if "files" in jobs:
        make_files(lab.folder / "source", count)
        found += many_files(lab, runs, count)
    rows = [
        (
            each.name,
            f"{each.ours:.3f}",
            "" if each.limit is None else f"{each.limit:.3f}",
            ", ".join(f"{peer} {value:.3f}" for peer, value in each.peers.items()),
        )
        for each in found
    ]
    say("\n" + table(("orchestration", "ours", "limit", "others"), rows) + "\n")
    return found


def main(argv: Sequence[str] | None = None) -> None:
    parser = arguments_parser("Run flows of Prefect beside larder prepare and a bare flow.")
    parser.add_argument("--only", choices=JOBS, action="append", help="this job (default: both)")
    flags = parser.parse_args(argv)
    count = max(20, round(FILES * flags.files_scale))
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as name:
        folder, port = Path(name), free_port()
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
        say(f"load at the start: {os.getloadavg()[0]:.1f}")
        with server_process(server, folder / "server.log", port):
            found = run(Lab(folder, port), flags.runs, count, flags.only or JOBS)
        say(f"load at the end: {os.getloadavg()[0]:.1f}")
    if flags.json:
        print(document("orchestration", found))


if __name__ == "__main__":
    main()
