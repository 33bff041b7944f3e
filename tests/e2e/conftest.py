"""A source of generated JPEGs, a Prefect server, and a place to run commands in."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.commands import Workplace
from tests.support.imagenet import imagenet_like
from tests.support.prefect_server import PROMPT, PrefectServer
from tests.support.processes import wait_until
from tests.support.servers import free_port


@pytest.fixture(scope="session")
def prefect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrefectServer]:
    home = tmp_path_factory.mktemp("prefect")
    server = PrefectServer(free_port(), home)
    program = str(Path(sys.executable).with_name("prefect"))
    where = ("--host", "127.0.0.1", "--port", str(server.port))
    with open(home / "log", "wb") as log:
        process = subprocess.Popen(
            [program, "server", "start", *where, "--no-ui"],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")},
                **PROMPT,
                "PREFECT_HOME": str(home),
                "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
                "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
                "DO_NOT_TRACK": "1",
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or server.answers())
        assert process.poll() is None, (home / "log").read_text()[-2000:]
        yield server
    finally:
        process.terminate()
        process.wait(60)


@pytest.fixture(scope="session")
def prefect_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """PREFECT_HOME of runs that start a server themselves: its database takes seconds to make."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory in the layout of ImageNet. Tests that change it work on a copy."""
    folder = tmp_path_factory.mktemp("source")
    for key, data in imagenet_like(60, classes=3):
        path = folder / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture
def place(tmp_path: Path, source: Path) -> Workplace:
    """Where commands run that end before Prefect is needed, or start a server themselves."""
    return Workplace(tmp_path, IMAGENET_SOURCE=str(source))


@pytest.fixture
def small(tmp_path: Path) -> Workplace:
    """Where the dataset ``files`` has five small objects."""
    (tmp_path / "source").mkdir()
    for number in range(5):
        (tmp_path / f"source/{number}.bin").write_bytes(b"%d" % number)
    return Workplace(tmp_path, LARDER_SOURCE=str(tmp_path / "source"))


@pytest.fixture
def reporting(place: Workplace, prefect_server: PrefectServer) -> Workplace:
    """Where commands run that report to the session's Prefect server."""
    place.environment |= {**PROMPT, "PREFECT_API_URL": prefect_server.url}
    return place


@pytest.fixture
def named(reporting: Workplace, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes the dataset imagenet under a name that no other test's flow runs have."""

    def make() -> str:
        name = re.sub(r"[^a-z]+", "-", request.node.name.lower())[-40:].strip("-")
        datasets = reporting.folder / "configs/datasets"
        text = (datasets / "imagenet.yaml").read_text()
        (datasets / f"{name}.yaml").write_text(text.replace("name: imagenet", f"name: {name}"))
        return name

    return make


@pytest.fixture
def own_source(tmp_path: Path, source: Path) -> Callable[[Workplace], Path]:
    def copy(place: Workplace) -> Path:
        folder = place.folder / "source"
        shutil.copytree(source, folder)
        place.environment["IMAGENET_SOURCE"] = str(folder)
        return folder

    return copy
