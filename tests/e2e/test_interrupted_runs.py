"""Runs that are interrupted or killed with a Prefect server of their own, and what stays behind."""

import os
import signal
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from serving import ON_THEIR_WAY

from flows.runs.prefect_settings import startup_seconds
from flows.runs.server import TemporaryServer
from tests.support.commands import Workplace
from tests.support.errors import larder_error
from tests.support.processes import wait_until

pytestmark = pytest.mark.push

FEW = ("--dataset", "imagenet", "--set", "cluster.runner.workers=1", "--set", "shards.bytes=100 kB")
FEW += ("--set", "cluster.runner.batch_bytes=200 kB", "--set", "mirror=true")
STOPPING = "stopping after the objects in progress"


@pytest.fixture
def place(place: Workplace, prefect_home: Path) -> Workplace:
    """Where no Prefect server is named; the database that temporary ones share is there already."""
    place.environment["PREFECT_HOME"] = str(prefect_home)
    return place


def mirrored(place: Workplace) -> list[Path]:
    return [path for path in place.storage.glob("larder/imagenet/mirror/**/*") if path.is_file()]


def last_run(place: Workplace) -> tuple[str, list[tuple[str, str]]]:
    """The state of the last flow run in Prefect's database, and names and states of its tasks."""
    path = Path(place.environment["PREFECT_HOME"]) / "prefect.db"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        runs = "SELECT id, state_type FROM flow_run ORDER BY start_time DESC"
        identity, state = database.execute(runs).fetchone()
        tasks = "SELECT name, state_type FROM task_run WHERE flow_run_id = ?"
        return state, database.execute(tasks, (identity,)).fetchall()


def test_a_run_interrupted_while_it_copies_and_then_run_to_the_end(place):
    running = place.start(*FEW, "--json")
    running.read_until("mirror: started")
    running.send(signal.SIGINT)
    done = running.wait()
    assert done.status == 130
    assert done.document["error"]["code"] == "run.interrupted"
    assert "Traceback" not in done.err
    assert done.err.splitlines()[-1].startswith("error[run.interrupted]: interrupted; run the same")
    assert done.err.count(STOPPING) == 1
    wait_until(lambda: not place.processes())
    state, tasks = last_run(place)
    assert state == "CANCELLED"
    assert {"CANCELLED"} <= {state for _, state in tasks} <= {"CANCELLED", "COMPLETED"}
    assert list(place.temporary.iterdir()) == []
    assert not list(place.storage.glob("larder/imagenet/versions/*/version.json"))
    copied = len(mirrored(place))

    # With a temporary server, because none is configured.
    done = place.run(*FEW, "--json")
    assert done.status == 0, done.err
    assert done.document["status"] == "built"
    left = len(mirrored(place)) - copied
    assert left <= done.document["copied"]["count"] <= left + ON_THEIR_WAY
    wait_until(lambda: not place.processes())
    assert list(place.temporary.iterdir()) == []
    # The run did not wait for the server, which still saved all events.
    state, tasks = last_run(place)
    assert (state, {state for _, state in tasks}) == ("COMPLETED", {"COMPLETED"})
    names = {name.partition(" ")[0] for name, _ in tasks}
    assert {"copy", "shards", "cache", "publish", "config", "data"} <= names


def test_nobody_waits_for_a_temporary_server_and_it_ends(place, monkeypatch):
    for name, value in place.environment.items():
        monkeypatch.setenv(name, value)
    server = TemporaryServer()
    server.wait(240)
    process = server._process.pid
    os.kill(process, signal.SIGSTOP)
    server.close()
    server.close()
    assert os.waitpid(process, os.WNOHANG) == (0, 0)
    os.kill(process, signal.SIGCONT)
    assert os.waitpid(process, 0)[0] == process


def test_a_killed_run_ends_its_prefect_server(place):
    running = place.start(*FEW)
    running.read_until("mirror: started")
    assert len(place.processes()) == 2
    os.kill(running.process.pid, signal.SIGKILL)
    assert running.wait().status == -signal.SIGKILL
    wait_until(lambda: not place.processes())


def damaged(file: Path) -> None:
    file.write_bytes(b"no database" * 1000)


def of_a_newer_prefect(file: Path) -> None:
    with sqlite3.connect(file) as database:
        database.execute("create table alembic_version (version_num varchar(32) not null)")
        database.execute("insert into alembic_version values ('ffffffffffff')")
    database.close()


@pytest.mark.parametrize("make", [damaged, of_a_newer_prefect])
def test_a_history_that_cannot_be_read_is_named(tmp_path, monkeypatch, make):
    file = tmp_path / "prefect.db"
    make(file)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path))
    monkeypatch.setenv("PREFECT_SERVER_LOGGING_LEVEL", "ERROR")
    monkeypatch.setattr("prefect.context.GLOBAL_SETTINGS_CONTEXT", None)  # of other tests
    server = TemporaryServer()
    with larder_error("run.server") as refused:
        server.wait(startup_seconds() * 2)
    server.close()
    assert f"{file} is damaged, or of a newer Prefect" in refused.value.hint
