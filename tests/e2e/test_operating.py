"""The recipes of docs/how-to/operating-prefect.md, as they are there, with real servers."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from required import as_root, missing, need_system
from test_prefect_deployments import EXECUTE

from flows.runs.processes import Service
from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import CHECKOUT, Workplace
from tests.support.http_server import QuietHandler, serving
from tests.support.postgresql import PROGRAMS, PostgreSQL, postgresql, postgresql_available
from tests.support.prefect_server import PrefectServer
from tests.support.processes import wait_until
from tests.support.servers import free_port

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(900)]

PAGE = (CHECKOUT / "docs/how-to/operating-prefect.md").read_text()
DATASET = "source: {{url: {}}}\nmirror: false\nlabels: null\n"


def recipe(kind: str, *words: str) -> str:
    """The only block of a kind, such as ``python``, that has these words."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    (block,) = (each for each in blocks if all(word in each for word in words))
    return str(block)


def shell(place: Workplace, *words: str, **options: Any) -> None:
    """Carry out a block of commands in a workplace that has a checkout's `.venv`."""
    paths = (Path(sys.executable).parent, PROGRAMS[-1], os.environ["PATH"])
    path = ":".join(map(str, paths))
    commands = recipe("", *words).replace("git pull", ":").replace(".venv/bin/", "")
    place_options = {"cwd": place.folder, "env": {**place.environment, "PATH": path}, **options}
    done = subprocess.run(
        ["sh", "-e", "-c", commands], capture_output=True, text=True, check=False, **place_options
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture
def heard() -> Iterator[tuple[str, list[str]]]:
    """The URL of a webhook, and what it was told."""
    texts: list[str] = []

    class Hook(QuietHandler):
        def do_POST(self) -> None:  # noqa: N802 - the name is http.server's
            body = self.rfile.read(int(self.headers["Content-Length"]))
            texts.append(json.loads(body)["text"])
            self.answer(200, b"")

    with serving(Hook) as url:
        yield url, texts


def test_alerts_and_a_deployment_that_every_version_starts(reporting, prefect_server, heard):
    url, texts = heard
    flow = prefect_server.post("/flows/", {"name": "train"})
    train = {"name": "imagenet", "flow_id": flow["id"], "entrypoint": "train.py:train"}
    training = prefect_server.post("/deployments/", train)
    source = reporting.folder / "source"
    source.mkdir()
    (reporting.folder / "configs/datasets/imagenet.yaml").write_text(DATASET.format(source))
    for code in (recipe("python", "CallWebhook"), recipe("python", "RunDeployment")):
        code = code.replace("https://alerts.example.com/larder", url)
        done = reporting.run(python=("-c", code))
        assert done.status == 0, done.err

    def prepared(objects: int) -> str:
        for number in range(objects):
            (source / f"{number}.bin").write_bytes(b"%d" % number)
        done = reporting.run("--dataset", "imagenet", "--json")
        assert done.status == 0, done.err
        version: str = done.document["version"]
        question = {"deployments": {"id": {"any_": [training["id"]]}}}

        def started() -> bool:
            runs = prefect_server.post("/flow_runs/filter", question)
            return {"version": version} in [run["parameters"] for run in runs]

        wait_until(started)
        return version

    prepared(10)
    prepared(12)
    assert texts == []
    prepared(15)
    wait_until(lambda: texts == ["imagenet has grown by 25.0 percent"])

    flow = prefect_server.post("/flows/", {"name": "prepare"})
    failing = {
        "name": "fails",
        "flow_id": flow["id"],
        "entrypoint": "flows.prepare.prepare",
        "tags": ["larder"],
        "parameters": {"dataset": "imagenet", "advanced": {"other_dataset": "elsewhere"}},
        "pull_steps": [
            {
                "prefect.deployments.steps.set_working_directory": {
                    "directory": str(reporting.folder)
                }
            }
        ],
    }
    made = prefect_server.post("/deployments/", failing)
    run = prefect_server.post(f"/deployments/{made['id']}/create_flow_run", {})
    reporting.run(run["id"], python=EXECUTE)
    wait_until(lambda: len(texts) == 2)
    assert texts[1].startswith("prepare elsewhere for local: error[config.unknown_dataset]: ")


@contextmanager
def server_on(database: PostgreSQL, folder: Path, **variables: str) -> Iterator[PrefectServer]:
    server = PrefectServer(free_port(), folder)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PREFECT_")}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "prefect", "server", "start", "--port", str(server.port)],
            env={**clean, **server_variables(database, folder), **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: process.poll() is not None or server.answers())
        assert process.poll() is None, (folder / "server.log").read_text()
        yield server
    finally:
        process.terminate()
        process.wait(60)


def server_variables(database: PostgreSQL, folder: Path) -> dict[str, str]:
    return {
        "PREFECT_HOME": str(folder / "prefect"),
        "PREFECT_SERVER_DATABASE_DRIVER": "postgresql+asyncpg",
        "PREFECT_SERVER_DATABASE_HOST": "127.0.0.1",
        "PREFECT_SERVER_DATABASE_PORT": str(database.port),
        "PREFECT_SERVER_DATABASE_USER": database.user,
        "PREFECT_SERVER_DATABASE_NAME": database.user,
        "PREFECT_SERVER_DATABASE_PASSWORD": database.password,
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }


@pytest.fixture
def history(tmp_path: Path) -> Iterator[tuple[PostgreSQL, Workplace]]:
    """A database, and a workplace whose environment names it."""
    need_system(postgresql_available(), "run .ci/install-postgresql")
    with postgresql("prefect", "a-password") as database:
        place = Workplace(
            tmp_path,
            PGHOST="127.0.0.1",
            PGPORT=str(database.port),
            PGUSER=database.user,
            PGPASSWORD=database.password,
            **server_variables(database, tmp_path),
        )
        yield database, place


def run_that_ended(
    server: PrefectServer, database: PostgreSQL, name: str, *, days_ago: int = 0
) -> None:
    flow = server.post("/flows/", {"name": "prepare"})
    state = {"type": "COMPLETED"}
    server.post("/flow_runs/", {"flow_id": flow["id"], "name": name, "state": state})
    earlier = f"end_time = end_time - interval '{days_ago} days'"
    database.ask("psql", "-c", f"UPDATE flow_run SET {earlier} WHERE name = '{name}'")


def names(server: PrefectServer) -> set[str]:
    return {run["name"] for run in server.post("/flow_runs/filter", {})}


def test_the_history_is_trimmed_backed_up_restored_and_upgraded(history):
    database, place = history
    trim = dict(line.split("=", 1) for line in recipe("", "DB_VACUUM").splitlines())
    with server_on(
        database, place.folder, **trim, PREFECT_SERVER_SERVICES_DB_VACUUM_LOOP_SECONDS="1"
    ) as server:
        run_that_ended(server, database, "recent", days_ago=89)
        run_that_ended(server, database, "old", days_ago=91)
        wait_until(lambda: names(server) == {"recent"})
        server.post("/variables/", {"name": "kept", "value": "1"})
        shell(place, "pg_dump")
        run_that_ended(server, database, "later")
    shell(place, "pg_restore")
    upgrade = recipe("", "git pull").splitlines()[-1].replace(".venv/bin/", "")
    program = Path(sys.executable).with_name("prefect")
    done = subprocess.run(
        [program, *upgrade.split()[1:]], env=place.environment, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    with server_on(database, place.folder) as server:
        assert names(server) == {"recent"}
        assert server.get("/variables/name/kept")["value"] == "1"


def test_the_storage_is_backed_up_and_restored(tmp_path):
    place = Workplace(tmp_path)
    done = place.run("data/source/digits", python=("-m", "larder.demo.digits"))
    assert done.status == 0, done.err
    shell(place, "umask", "prepare")
    shell(place, "data/local backup/local")
    before = check_all(open_store(str(place.storage / "larder/digits")))
    shutil.rmtree(place.storage)
    shell(place, "backup/local data/local", "verify")
    assert check_all(open_store(str(place.storage / "larder/digits"))) == before
    shell(place, "umask", "prepare")
    assert check_all(open_store(str(place.storage / "larder/digits"))) == before


def test_logs_are_rotated_while_they_are_written(tmp_path, monkeypatch):
    program = shutil.which("logrotate", path=f"{os.environ['PATH']}:/usr/sbin")
    need_system(program is not None, "run .ci/install-postgresql")
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / "home"))
    config = tmp_path / "larder"
    config.write_text(recipe("", "copytruncate").replace("/srv/larder", str(tmp_path)))
    log = tmp_path / "data/prefect/server.log"
    log.parent.mkdir(parents=True)
    log.write_text("the week before\n")
    service = Service(log, "server", "start", "--port", str(free_port()))
    try:
        command = [str(program), "--force", "--state", str(tmp_path / "state"), str(config)]
        subprocess.run([*as_root(), *command], check=True)
        assert gzip.decompress((log.parent / "server.log.1.gz").read_bytes())
        wait_until(lambda: log.stat().st_size > 0)
    finally:
        service.stop()
    assert not log.read_bytes().startswith((b"\0", b"the week before"))


def test_several_users_share_data(tmp_path):
    if os.geteuid() != 0:
        missing("needs root, to be two users")
    place = Workplace(tmp_path)
    done = place.run("data/source/digits", python=("-m", "larder.demo.digits"))
    assert done.status == 0, done.err
    commands = recipe("", "groupadd")
    assert "groupadd larder\n" in commands
    group = 4100
    commands = commands.replace("groupadd larder\n", "").replace("larder", str(group))
    subprocess.run(["sh", "-e", "-c", commands], cwd=tmp_path, check=True)
    # They may have to read a checkout that is in a folder of root; the modes are looked at below.
    reading = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")
    tmp_path.chmod(0o755)
    for user in (4101, 4102, 4101):
        for folder in (tmp_path / f"home-{user}", tmp_path / f"tmp-{user}"):
            folder.mkdir(exist_ok=True)
            os.chown(folder, user, user)
        place.environment |= {
            "HOME": str(tmp_path / f"home-{user}"),
            "TMPDIR": str(tmp_path / f"tmp-{user}"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        become = ("setpriv", f"--reuid={user}", f"--regid={user}", f"--groups={group}", *reading)
        commands = recipe("", "umask", "prepare")
        shared = subprocess.run(
            [*become, "sh", "-e", "-c", commands],
            cwd=tmp_path,
            env=place.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert shared.returncode == 0, shared.stderr
        first = min((tmp_path / "data/source/digits").glob("*/*.png"))
        first.unlink()  # so that the next one has something to do
    for path in (tmp_path / "data/local").rglob("*"):
        wanted = 0o2070 if path.is_dir() else 0o060
        assert stat.S_IMODE(path.stat().st_mode) & wanted == wanted, path
    assert check_all(open_store(str(place.storage / "larder/digits")))
