"""A source of generated JPEGs, a Prefect server, and a place to run commands in."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from larder.testing.commands import Workplace
from larder.testing.datasets import imagenet_like

START_SECONDS = 240.0
POLL_SECONDS = 0.1
IMAGES = 60
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")


@dataclass(frozen=True)
class PrefectServer:
    """A Prefect server that runs.

    Attributes:
        port: On 127.0.0.1.
        home: Its PREFECT_HOME.
    """

    port: int
    home: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def post(self, path: str, question: dict[str, Any]) -> Any:
        """Ask its REST API, again where its database was busy, as Prefect's own client does."""
        headers = {"Content-Type": "application/json"}
        for _ in range(100):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request("POST", f"/api{path}", json.dumps(question), headers)
                answer = connection.getresponse()
                body = answer.read()
            finally:
                connection.close()
            if answer.status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                break
            time.sleep(POLL_SECONDS)
        assert answer.status < 300, body
        return json.loads(body)

    def flow_runs(self, name: str) -> list[dict[str, Any]]:
        """The flow runs of a name, the oldest first."""
        named = {"flow_runs": {"name": {"any_": [name]}}, "sort": "START_TIME_ASC"}
        runs: list[dict[str, Any]] = self.post("/flow_runs/filter", named)
        return runs

    def task_runs(
        self, flow_run: dict[str, Any], count: int, states: Sequence[str] = FINAL
    ) -> list[dict[str, Any]]:
        """The task runs of a flow run in one of ``states``, once there are ``count`` of them.

        They come to the server as events, and may do so a little after their flow run.
        """
        question = {
            "flow_runs": {"id": {"any_": [flow_run["id"]]}},
            "task_runs": {"state": {"type": {"any_": list(states)}}},
        }
        runs: list[dict[str, Any]] = []
        for _ in range(600):
            runs = self.post("/task_runs/filter", question)
            if len(runs) >= count:
                break
            time.sleep(POLL_SECONDS)
        return runs

    def logs(self, flow_run: dict[str, Any], awaited: str) -> list[str]:
        """The lines of a flow run's log in their order, once one begins with ``awaited``.

        They too may come a little later.
        """
        question = {
            "logs": {"flow_run_id": {"any_": [flow_run["id"]]}},
            "sort": "TIMESTAMP_ASC",
        }
        lines: list[str] = []
        for _ in range(600):
            lines = [log["message"] for log in self.post("/logs/filter", question)]
            if any(line.startswith(awaited) for line in lines):
                break
            time.sleep(POLL_SECONDS)
        return lines


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    """A real Prefect server for the whole session."""
    home = tmp_path_factory.mktemp("prefect")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    environment = {
        **clean,
        "PREFECT_HOME": str(home),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
        "DO_NOT_TRACK": "1",
    }
    program = Path(sys.executable).with_name("prefect")
    command = [str(program), "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(
            [*command, "--no-ui"],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_for_server(process, port, home / "log")
        yield PrefectServer(port, home)
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PREFECT_HOME of runs that start a server themselves: its database takes seconds to make."""
    return tmp_path_factory.mktemp("home")


def _wait_for_server(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    for _ in range(int(START_SECONDS / POLL_SECONDS)):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=START_SECONDS)
        try:
            connection.request("GET", "/api/health")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        finally:
            connection.close()
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        pytest.fail(f"the Prefect server ended: {log.read_text()[-2000:]}")
    pytest.fail(f"the Prefect server did not start: {log.read_text()[-2000:]}")


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in the layout of ImageNet. Tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("source")
    for key, data in imagenet_like(IMAGES, classes=3):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def place(tmp_path: Path, source: Path) -> Workplace:
    """Where commands run that end before Prefect is needed, or start a server themselves."""
    return Workplace(tmp_path, IMAGENET_SOURCE=str(source))


@pytest.fixture
def reporting(place: Workplace, prefect_server: PrefectServer) -> Workplace:
    """Where commands run that report to the session's Prefect server."""
    place.environment["PREFECT_API_URL"] = prefect_server.url
    return place


@pytest.fixture
def own_source(tmp_path: Path, source: Path) -> Callable[[Workplace], Path]:
    """Gives a workplace a copy of the source, to be changed."""

    def copy(place: Workplace) -> Path:
        folder = place.folder / "source"
        shutil.copytree(source, folder)
        place.environment["IMAGENET_SOURCE"] = str(folder)
        return folder

    return copy
