"""The steps of the Dockerfile without Docker, and the commands of the Compose file on loopback.

What the image copies is installed in a new directory, with an empty home directory. The
server, its database and the worker are those of deployments/compose.yaml: the same commands and
variables, but for names of hosts and ports, and how often Prefect looks.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from required import need_system
from ruamel.yaml import YAML
from serving import FAST, OBJECT_BYTES, OBJECTS
from test_blocks import create_block

from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import CHECKOUT
from tests.support.postgresql import PROGRAMS, PostgreSQL, postgresql, postgresql_available
from tests.support.prefect_server import PROMPT, PrefectServer
from tests.support.processes import children, is_running, wait_until
from tests.support.servers import free_port

pytestmark = [pytest.mark.push, pytest.mark.timeout(900)]

COMPOSE = CHECKOUT / "deployments/compose.yaml"
PASSWORD = "a'password/with@characters"
SLOW = "cluster.copy.max_bytes_per_second=100 kB"


def build(image: Path) -> None:
    """Carry out the Dockerfile's COPY, and the RUN that installs."""
    steps = (CHECKOUT / "deployments/docker/Dockerfile").read_text().replace("\\\n", "")
    for line in re.findall(r"(?m)^COPY (.+)$", steps):
        *sources, goal = line.split()
        for source in sources:
            to = image / goal
            if (CHECKOUT / source).is_dir():
                leave_out = shutil.ignore_patterns("__pycache__", ".*", "*.env")
                shutil.copytree(CHECKOUT / source, to, symlinks=True, ignore=leave_out)
            else:
                to = to / Path(source).name if goal.endswith("/") else to
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(CHECKOUT / source, to)
    install = re.findall(r"(?m)^RUN (deployments/\S+)$", steps)
    assert len(install) == 1
    subprocess.run(install, cwd=image, env=environment(image), check=True)


def environment(image: Path, **variables: str) -> dict[str, str]:
    """That of a container; and how to reach the package index."""
    index = re.compile(r"PIP_(?!CONSTRAINT)|SSL_CERT_|(https?|no)_proxy$", re.IGNORECASE)
    base = Path(sys.base_prefix) / "bin"
    return {
        **{name: value for name, value in os.environ.items() if index.match(name)},
        "PATH": f"{image}/.venv/bin:{base}:/usr/local/bin:/usr/bin:/bin",
        "HOME": str(image.parent / "home"),
        "LANG": "C.UTF-8",
        **variables,
    }


class Composed:
    """The services of the Compose file, without containers."""

    def __init__(self, image: Path, database: PostgreSQL, source: Path) -> None:
        self.image = image
        self.database = database
        self.source = source
        self.server = PrefectServer(free_port(), image)
        self._services = YAML(typ="safe").load(COMPOSE)["services"]
        self._other = {
            r"\$\{LARDER_DATABASE_PASSWORD:\?[^}]*\}": PASSWORD,
            r"^database$": "127.0.0.1",
            r"^5432$": str(database.port),
            r"^0\.0\.0\.0$": "127.0.0.1",
            r"//(server|127\.0\.0\.1):4200": f"//127.0.0.1:{self.server.port}",
            r"^/home/larder/": f"{image.parent}/home/",
        }

    @contextmanager
    def running(self, name: str, **variables: str) -> Iterator[subprocess.Popen[bytes]]:
        service = self._services[name]
        for variable, value in service["environment"].items():
            text = str(value)
            for pattern, other in self._other.items():
                text = re.sub(pattern, other, text)
            variables[variable] = text
        variables |= PROMPT
        with (self.image.parent / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                service["command"],
                cwd=self.image,
                env=environment(self.image, **variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(120)

    def start_files(self, *settings: str) -> dict[str, Any]:
        variables = {"env": {"LARDER_SOURCE": "{{ prefect.blocks.secret.larder-source }}"}}
        form = {"dataset": "files", "advanced": {"settings": [*FAST, *settings]}}
        return self.server.submit("prepare/files", form, job_variables=variables)

    def copied(self) -> int:
        return len(list(self.image.glob("data/local/larder/files/mirror/*")))

    def log(self, name: str) -> str:
        return (self.image.parent / f"{name}.log").read_text()


@pytest.fixture
def composed(tmp_path: Path) -> Iterator[Composed]:
    need_system(postgresql_available(), "run .ci/install-postgresql")
    image, source = tmp_path / "image", tmp_path / "source"
    (tmp_path / "home").mkdir()
    source.mkdir()
    for number in range(OBJECTS):
        (source / f"{number:03}.bin").write_bytes(os.urandom(OBJECT_BYTES))
    build(image)
    with postgresql("prefect", PASSWORD) as database:
        yield Composed(image, database, source)


def test_the_compose_file_runs_digits_with_postgresql_and_secrets(composed):
    server = composed.server
    with composed.running("server", PREFECT_SERVER_API_PORT=str(server.port)) as process:
        wait_until(lambda: process.poll() is not None or server.answers())
        assert process.poll() is None, composed.log("server")
        ui = composed.image.parent / "home/.prefect/ui"
        assert list(ui.rglob("index.html")), "its package is another user's in the image"
        with composed.running("worker") as worker:
            wait_until(
                lambda: worker.poll() is not None or server.has("prepare/files"), seconds=240
            )
            assert worker.poll() is None, composed.log("worker")
            data = {"value": str(composed.source)}
            create_block(server, "secret", "larder-source", data, "value")
            digits = server.ended(server.submit("prepare/digits", {"dataset": "digits"}))
            assert digits["state_type"] == "COMPLETED", composed.log("worker")
            (version,) = check_all(open_store(str(composed.image / "data/local/larder/digits")))
            assert version
            assert (composed.image / "out/local/digits/experiment.yaml").is_file()
            rows = composed.database.ask("psql", "-At", "-c", "SELECT name FROM flow_run")
            assert rows == "prepare digits for local"

            slow = composed.start_files(SLOW)
            wait_until(lambda: 0 < composed.copied() < OBJECTS)
            runs = [run for each in children(worker.pid) for run in children(each)]
            assert runs
        assert not any(map(is_running, runs))
        with composed.running("worker"):
            assert server.ended(slow)["state_type"] == "CRASHED"
            before = composed.copied()
            run = server.ended(composed.start_files())
            assert run["state_type"] == "COMPLETED", composed.log("worker")
            lines = server.logs(run, "files built")
            (copied,) = [line for line in lines if line.startswith("mirror: started")]
            assert int(copied.split()[2]) == OBJECTS - before
    secret = str(composed.source)
    assert secret not in composed.log("worker") + json.dumps(run)
    assert PASSWORD not in composed.log("server") + composed.log("worker")


def test_the_back_up_of_a_page_is_restored(tmp_path):
    """With the commands for PostgreSQL of the page on operating Prefect, in their order."""
    need_system(postgresql_available(), "run .ci/install-postgresql")
    page = (CHECKOUT / "docs/how-to/operating-prefect.md").read_text()
    dump, *restore = re.findall(
        r"(?m)^(?:pg_dump|dropdb|createdb|pg_restore) --?.*|^createdb.*", page
    )
    assert [line.split()[0] for line in restore] == ["dropdb", "createdb", "pg_restore"]
    with postgresql("prefect", "password") as database:
        where = {"HOST": "127.0.0.1", "PORT": str(database.port)}
        where |= {"USER": database.user, "PASSWORD": database.password}
        environment = {**os.environ, **{f"PG{name}": value for name, value in where.items()}}
        environment["PATH"] = f"{PROGRAMS[-1]}:{environment['PATH']}"

        def run(*commands: str) -> None:
            script = ["bash", "-euc", "\n".join(commands)]
            subprocess.run(script, cwd=tmp_path, env=environment, check=True)

        database.ask("psql", "--command=create table runs as select 7 as number")
        run(dump)
        database.ask("psql", "--command=drop table runs; create table newer (number int)")
        run(*restore)
        assert "7" in database.ask("psql", "--command=table runs")
        with pytest.raises(subprocess.CalledProcessError):
            database.ask("psql", "--command=table newer")
