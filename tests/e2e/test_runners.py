"""The batches of a flow run on Dask and Ray: the same bytes as here, also if a worker is killed."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from required import missing

from larder.packages import is_installed
from tests.support.commands import CHECKOUT, Workplace
from tests.support.prefect_server import POLL_SECONDS, PrefectServer
from tests.support.processes import wait_until
from tests.support.servers import free_port

SMALL = ("--set", "shards.bytes=600 kB", "--set", "cluster.runner.batch_bytes=600 kB")
SMALL += ("--set", "mirror=true", "--set", "cluster.runner.workers=2")
SLOW = ("--set", "cluster.copy.max_bytes_per_second=2 MB")


@pytest.fixture(scope="module")
def _installed() -> None:
    if not (is_installed("prefect_dask") and is_installed("prefect_ray")):
        missing("Dask and Ray are not set up (`make dask ray` does that)")


needs_both = pytest.mark.usefixtures("_installed")
pytestmark = pytest.mark.push


class DaskCluster:
    """A scheduler and two workers, without nannies, which would replace one that is killed."""

    def __init__(
        self, folder: Path, stack: ExitStack, server: PrefectServer, workers: int = 2
    ) -> None:
        self._folder, self._stack, self._server = folder, stack, server
        where = folder / "scheduler.json"
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", where)
        wait_until(where.exists)
        self.workers = [self.start_worker() for _ in range(workers)]

    def start_worker(self) -> subprocess.Popen[bytes]:
        where = self._folder / "scheduler.json"
        return self._start("worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", where)

    @property
    def address(self) -> str:
        import distributed

        with distributed.Client(scheduler_file=self._folder / "scheduler.json") as client:
            if self.workers:
                client.wait_for_workers(len(self.workers), timeout=60)
            address: str = client.scheduler.address
            return address

    def _start(self, name: str, *options: str | Path) -> subprocess.Popen[bytes]:
        *flags, where = options
        command = [sys.executable, "-m", "dask", name, *flags, "--scheduler-file", where]
        own = {"PYTHONPATH": str(CHECKOUT), "PREFECT_API_URL": self._server.url}
        with open(self._folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen(
                command, cwd=self._folder, env={**os.environ, **own}, stdout=log, stderr=log
            )
        self._stack.callback(process.wait)
        self._stack.callback(process.kill)
        return process


@pytest.fixture(scope="module")
def dask(
    _installed: None, tmp_path_factory: pytest.TempPathFactory, prefect_server: PrefectServer
) -> Iterator[DaskCluster]:
    with ExitStack() as stack:
        yield DaskCluster(tmp_path_factory.mktemp("dask"), stack, prefect_server)


def copying(server: PrefectServer, name: str) -> int:
    runs = server.flow_runs(f"prepare {name} for local")
    question = {
        "flow_runs": {"id": {"any_": [run["id"] for run in runs]}},
        "task_runs": {"state": {"type": {"any_": ["RUNNING"]}}},
    }
    tasks = server.post("/task_runs/filter", question) if runs else []
    return sum(task["name"].startswith("copy objects") for task in tasks)


def with_one_killed(
    place: Workplace, name: str, workers: Callable[[], list[int]], *options: str
) -> dict[str, Any]:
    """The document of a run of which one of the workers with a batch is killed, once there are."""
    running = place.start("--dataset", name, "--json", *SMALL, *SLOW, *options)
    try:
        while running.process.poll() is None and not (busy := workers()):
            time.sleep(POLL_SECONDS)
        assert running.process.poll() is None, running.wait().err
        os.kill(busy[0], signal.SIGKILL)
        done = running.wait()
    finally:
        if running.process.poll() is None:
            running.send(signal.SIGKILL)
            running.process.wait()
    assert done.status == 0, done.err
    assert "Traceback" not in done.err
    return done.document


def same_as_here(place: Workplace, name: str, document: dict[str, Any]) -> None:
    root = place.storage / "larder" / name
    shards = {path.name: path.read_bytes() for path in root.glob("segments/*/shards/*/*.tar")}
    again = place.folder / "again"
    here = ("-m", "larder.cli.main", "prepare", "--dataset", name, "--json")
    done = place.run(*SMALL, "--set", f"cluster.storage.url={again}", python=here)
    assert done.status == 0, done.err
    assert done.document["digest"] == document["digest"]
    root = again / "larder" / name
    assert shards == {p.name: p.read_bytes() for p in root.glob("segments/*/shards/*/*.tar")}
    assert len(shards) > 3


@needs_both
def test_a_worker_that_does_not_see_the_storage(reporting, named, dask):
    name = named()
    kind = ("--set", "cluster.runner.kind=dask", "--set", "cluster.storage.url=/proc/self/cwd/data")
    kind += ("--set", f"cluster.runner.address={dask.address}")
    done = reporting.run("--dataset", name, "--json", *SMALL, *kind)
    assert done.status == 2, done.err
    assert done.document["error"]["code"] == "config.runner"
    assert done.document["error"]["where"] == dask.address


@needs_both
def test_a_cluster_without_workers_is_named_and_waited_for(
    tmp_path_factory, reporting, prefect_server, named
):
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("none")
        dask = DaskCluster(folder, stack, prefect_server, workers=0)
        flags = ("--set", "cluster.runner.kind=dask", "--set")
        running = reporting.start(
            "--dataset", named(), *flags, f"cluster.runner.address={dask.address}"
        )
        running.read_until(f"warning: {dask.address} has no worker left")
        dask.start_worker()
        done = running.wait()
        assert done.status == 0, done.err


@needs_both
def test_a_dask_cluster_of_which_a_worker_is_killed(reporting, prefect_server, named, dask):
    name = named()
    kind = ("--set", "cluster.runner.kind=dask")
    kind += ("--set", f"cluster.runner.address={dask.address}")

    def workers() -> list[int]:
        """Of two batches, each worker has one."""
        return [each.pid for each in dask.workers] if copying(prefect_server, name) == 2 else []

    document = with_one_killed(reporting, name, workers, *kind)
    assert dask.workers[0].wait() == -signal.SIGKILL
    assert dask.workers[1].poll() is None
    same_as_here(reporting, name, document)
    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    states = {task["state_type"] for task in prefect_server.task_runs(run, 20)}
    assert states == {"COMPLETED"}


@needs_both
def test_a_local_ray_of_which_a_worker_is_killed(reporting, named):
    name = named()
    kind = ("--set", "cluster.runner.kind=ray")

    def ray_workers() -> list[int]:
        return [pid for pid, line in reporting.processes().items() if line.startswith("ray::copy")]

    with TemporaryDirectory(prefix="ray-") as folder:  # its sockets need a short path
        reporting.environment["RAY_TMPDIR"] = folder
        document = with_one_killed(reporting, name, ray_workers, *kind)
        wait_until(lambda: not reporting.processes())
    same_as_here(reporting, name, document)


@pytest.fixture
def ray_address(place: Workplace) -> Iterator[str]:
    """A Ray of one node that this test has started, with the HOME of the place."""
    ports = [free_port() for _ in range(2)]
    with TemporaryDirectory(prefix="ray-") as folder:
        command = [Path(sys.executable).with_name("ray"), "start", "--head", "--block"]
        command += ["--num-cpus=2", "--include-dashboard=false", f"--temp-dir={folder}"]
        command += [f"--port={ports[0]}", f"--ray-client-server-port={ports[1]}"]
        environment = {**place.environment, "RAY_USAGE_STATS_ENABLED": "0"}
        with open(Path(folder) / "log", "wb") as log:
            head = subprocess.Popen(
                command, env=environment, stdout=log, stderr=log, start_new_session=True
            )
        try:
            wait_until(lambda: listens(ports[1]) or head.poll() is not None)
            yield f"ray://127.0.0.1:{ports[1]}"
        finally:
            head.terminate()
            head.wait()
            wait_until(lambda: not place.processes())


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@needs_both
def test_a_ray_that_runs_already(reporting, named, ray_address):
    kind = ("--set", "cluster.runner.kind=ray", "--set", f"cluster.runner.address={ray_address}")
    done = reporting.run("--dataset", named(), "--json", *SMALL, *kind)
    assert done.status == 0, done.err
    assert done.document["status"] == "built"


CANCELLED = """
from prefect import flow, get_client
from prefect.context import FlowRunContext
from prefect.states import Cancelling
from larder.errors import FatalError
from tasks.run_progress import current_progress, reported_later

@flow
def run():
    with reported_later() as times:
        current_progress().advance("copy", objects=3)
        with get_client(sync_client=True) as client:
            client.set_flow_run_state(FlowRunContext.get().flow_run.id, Cancelling(), force=True)
        try:
            while True:
                current_progress().advance("copy")
        except FatalError as error:
            print(error.code, times.stages()["copy"]["objects"])

run()
"""


def test_a_batch_elsewhere_stops_once_its_run_is_cancelled(reporting):
    done = reporting.run(python=("-c", CANCELLED))
    assert done.out == "run.interrupted 3\n", done.err
