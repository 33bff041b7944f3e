"""What people do with ``make serve``: start runs by their forms, cancel them, lose a worker."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from serving import (
    FAST,
    OBJECT_BYTES,
    OBJECTS,
    ON_THEIR_WAY,
    SLOW,
    Run,
    Serving,
    serving_in,
)

from flows.runs.deployments import IMAGE_DIRECTORY
from flows.runs.prefect_settings import profiles_path
from larder.errors import ConfigError
from tests.support.commands import CHECKOUT, Workplace
from tests.support.http_server import QuietHandler
from tests.support.http_server import serving as serving_http
from tests.support.processes import is_running, wait_until

NEVER_DONE = [*FAST, "cluster.copy.max_bytes_per_second=3 kB"]
"""As good as that: minutes, after which no test waits for the run."""

pytestmark = [pytest.mark.exhaustive, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """For the tests that leave it running; none is left of their runs and their storage."""
    with serving_in(tmp_path_factory.mktemp("served")) as serving:
        yield serving


@pytest.fixture
def shared(served: Serving) -> Serving:
    shutil.rmtree(served.place.storage, ignore_errors=True)
    return served


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    with serving_in(tmp_path) as serving:
        yield serving


def test_a_form_is_run_and_the_second_run_finds_the_work_done(shared):
    serving = shared
    first = serving.start(SLOW)
    wait_until(lambda: serving.copied() > 0)
    second = serving.start(FAST)
    waiting = "waiting for the limit larder-files"
    assert any(line.startswith(waiting) for line in serving.server.logs(second, waiting))
    for run in (first, second):
        done = serving.server.ended(run)
        assert (done["state_type"], done["name"]) == ("COMPLETED", "prepare files for local")
    lines = serving.server.logs(second, "files reused")
    assert any(line.startswith("files reused: version") for line in lines)
    (limit,) = [
        each
        for each in serving.server.post("/v2/concurrency_limits/filter", {})
        if each["name"] == "larder-files"
    ]
    assert (limit["limit"], limit["active_slots"]) == (1, 0)

    again = serving.place.start(python=("-m", "flows.serve")).wait()
    assert again.status == 2
    assert f"config.path]: {serving.place.folder}/data/prefect" in again.err


def test_a_schedule_that_meets_a_run_still_going_waits_or_is_cancelled(shared):
    serving = shared
    form = {"dataset": "files", "advanced": {"settings": NEVER_DONE}}
    first = serving.server.submit("prepare/digits", form)
    identity = serving.server.get("/deployments/name/prepare/digits")["id"]
    wait_until(lambda: serving.copied() > 0, seconds=180)
    daily = {"schedule": {"interval": 24 * 3600}, "parameters": {"dataset": "files"}}
    serving.server.post(f"/deployments/{identity}/schedules", [daily])
    question = {"deployments": {"id": {"any_": [identity]}}, "sort": "EXPECTED_START_TIME_ASC"}

    def planned() -> list[Run]:
        runs = serving.server.post("/flow_runs/filter", question)
        return [run for run in runs if run["auto_scheduled"]]

    wait_until(lambda: bool(planned()), seconds=180)
    run = planned()[0]
    now = {"type": "SCHEDULED", "state_details": {"scheduled_time": datetime.now(UTC).isoformat()}}
    serving.server.post(f"/flow_runs/{run['id']}/set_state", {"state": now})

    def waits() -> bool:
        state = serving.server.get(f"/flow_runs/{run['id']}")["state"]["name"]
        return bool(state == "AwaitingConcurrencySlot")

    wait_until(waits, seconds=180)
    assert len(serving.processes("prefect.engine")) == 1
    serving.server.post(f"/flow_runs/{first['id']}/set_state", {"state": {"type": "CANCELLING"}})
    assert serving.server.ended(first)["state_type"] == "CANCELLED"
    lines = serving.server.logs(run, "files built")
    assert any(line.startswith("files built") for line in lines)
    assert serving.server.ended(run)["state_type"] == "COMPLETED"

    (serving.source / "one-more.bin").write_bytes(os.urandom(OBJECTS * OBJECT_BYTES))
    form = {"datasets": ["files"], "advanced": {"settings": NEVER_DONE}}
    refresh = serving.server.submit("refresh/refresh", form)

    def state() -> str:
        return str(serving.server.get(f"/flow_runs/{refresh['id']}")["state_type"])

    wait_until(lambda: state() == "RUNNING", seconds=180)
    second = serving.server.ended(serving.server.submit("refresh/refresh", form))
    assert second["state_type"] == "CANCELLED", second["state"]
    serving.server.post(f"/flow_runs/{refresh['id']}/set_state", {"state": {"type": "CANCELLING"}})
    assert serving.server.ended(refresh)["state_type"] == "CANCELLED"
    (serving.source / "one-more.bin").unlink()


def test_the_run_of_a_worker_that_dies_ends_and_the_next_one_continues(shared):
    serving = shared
    run = serving.in_the_middle()
    (process,) = serving.processes("prefect.engine")
    (worker,) = serving.processes("worker start")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": tomorrow}}
    pending = serving.server.submit("prepare/digits", {"dataset": "digits"}, state=later)
    serving.server.post(f"/flow_runs/{pending['id']}/set_state", {"state": {"type": "PENDING"}})
    os.kill(worker, signal.SIGKILL)
    ended = serving.server.ended(run)
    assert ended["state_type"] == "CRASHED", ended["state"]
    wait_until(lambda: not is_running(process))
    serving.running.read_until("the worker ended with status -9; starting another one")
    assert serving.server.ended(pending)["state_type"] == "CRASHED"
    digits = serving.server.get("/deployments/name/prepare/digits")
    assert digits["global_concurrency_limit"]["active_slots"] == 0
    serving.check_continued(unknown=ON_THEIR_WAY)


def test_a_server_that_dies_is_started_again_and_its_run_goes_on(shared):
    serving = shared
    run = serving.in_the_middle([*FAST, "cluster.copy.max_bytes_per_second=300 kB"])
    (server,) = serving.processes("server start")
    os.kill(server, signal.SIGKILL)
    serving.running.read_until("the server ended with status -9; starting another one")
    wait_until(serving.server.answers, seconds=180)
    assert serving.server.ended(run)["state_type"] == "COMPLETED"
    next_run = serving.start(FAST)
    assert serving.server.ended(next_run)["state_type"] == "COMPLETED"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_when_it_ends_and_its_runs_are_crashed_and_continued(serving, number):
    run = serving.in_the_middle()
    serving.running.process.send_signal(number)
    if number == signal.SIGKILL:  # all at once, as if the machine were reset
        for process in serving.processes("prefect.engine"):
            with suppress(ProcessLookupError):
                os.kill(process, number)
    assert serving.running.wait().status == (0 if number == signal.SIGINT else -number)
    wait_until(lambda: not serving.processes("prefect"))

    served_again = Serving(serving.place)
    serving.running = served_again.running
    serving.server = served_again.server
    assert serving.server.ended(run)["state_type"] == "CRASHED"
    wait_until(lambda: "larder-files" not in serving.server.get(f"/flow_runs/{run['id']}")["tags"])
    limit = serving.server.get("/v2/concurrency_limits/larder-files")
    assert limit["active_slots"] == 0
    serving.check_continued(unknown=0 if number == signal.SIGINT else OBJECTS)


class OldServer(QuietHandler):
    """Answers as a Prefect server of another major version."""

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        answers = {"/api/health": b"true", "/api/admin/version": b'"2.20.3"'}
        body = answers.get(self.path)
        self.answer(404 if body is None else 200, body or b"{}")


class Closed(QuietHandler):
    """Answers as a Prefect server that asks for a password."""

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        self.answer(200 if self.path == "/api/health" else 401, b'"Unauthorized"')


def test_deploying_needs_a_server_a_pool_and_different_names(reporting, prefect_server):
    (reporting.folder / "deployments").mkdir()
    shipped = (CHECKOUT / "deployments/prefect.yaml").read_text()
    (reporting.folder / "deployments/prefect.yaml").write_text(shipped)
    deploy = ("-m", "flows.deploy")
    nowhere = reporting.run("--pool", "p", python=deploy, PREFECT_API_URL="")
    assert "error[config.invalid_value]: PREFECT_API_URL: " in nowhere.err
    silent = reporting.run("--pool", "p", python=deploy, PREFECT_API_URL="http://127.0.0.1:9/api")
    assert "error[run.server]: http://127.0.0.1:9/api: " in silent.err
    with serving_http(Closed) as url:
        closed = reporting.run("--pool", "p", python=deploy, PREFECT_API_URL=f"{url}/api")
        assert "error[run.server]: http://127.0.0.1:" in closed.err
        assert "set PREFECT_API_AUTH_STRING" in closed.err
    with serving_http(OldServer) as url:
        for program in (("-m", "flows.prepare", "--dataset", "imagenet"), (*deploy, "--pool", "p")):
            old = reporting.run(python=program, PREFECT_API_URL=f"{url}/api")
            assert "error[run.server]: http://127.0.0.1:" in old.err
            assert "server: 2.20.3" in old.err
    unknown = reporting.run("--pool", "p", python=deploy)
    assert (unknown.status, "error[config.work_pool]: POOL: " in unknown.err) == (2, True)

    prefect_server.post("/work_pools/", {"name": "p", "type": "process"})
    (reporting.folder / "flows").symlink_to(CHECKOUT / "flows")
    done = reporting.run("--pool", "p", python=deploy)
    assert done.status == 0, done.err
    assert "  prepare/imagenet\n" in done.out
    assert "no worker is online" in done.out
    current = reporting.run("--pool", "p", "--changed-only", python=deploy)
    assert "are current" in current.out
    refresh = prefect_server.get("/deployments/name/refresh/refresh")
    there = f"/deployments/{refresh['id']}/schedules"
    prefect_server.post(there, [{"schedule": {"cron": "0 4 * * *"}, "active": True}])
    prefect_server.patch(f"{there}/{refresh['schedules'][0]['id']}", {"active": True})
    (reporting.folder / "configs/datasets/mine.yaml").write_text("source: {url: x}\n")
    changed = reporting.run("--pool", "p", "--changed-only", python=deploy)
    assert "  prepare/imagenet\n" in changed.out
    schedules = prefect_server.get("/deployments/name/refresh/refresh")["schedules"]
    assert sorted((each["active"], each["schedule"]["cron"]) for each in schedules) == [
        (True, "0 3 * * *"),
        (True, "0 4 * * *"),
    ]
    prefect_server.post("/work_pools/", {"name": "q", "type": "process"})
    moved = reporting.run("--pool", "q", "--replace", python=deploy)
    assert "they are no longer in the work pool p" in moved.out
    deployed = prefect_server.get("/deployments/name/deploy/deploy")
    there = {"pool": "q", "directory": str(reporting.folder), "team": ""}
    assert deployed["parameters"] == there

    twice = shipped.replace("- name: files", "- name: digits")
    where = "error[config.invalid_value]: deployments/prefect.yaml: "
    block = '{dataset: "{{ prefect.blocks.secret.key }}"'
    for secret in (
        shipped.replace("{dataset: digits", block, 1),
        shipped.replace("{slug: nightly", f"{{parameters: {block}}}, slug: nightly", 1),
    ):
        (reporting.folder / "deployments/prefect.yaml").write_text(secret)
        leaking = reporting.run("--pool", "p", python=deploy)
        assert f"{where}a block is read" in leaking.err
    (reporting.folder / "deployments/prefect.yaml").write_text(twice)
    refused = reporting.run("--pool", "p", python=deploy)
    assert f"{where}there are two deployments prepare/digits" in refused.err


def test_serving_needs_ps(tmp_path):
    done = Workplace(tmp_path).run(python=("-m", "flows.serve"), PATH="/nowhere")
    assert done.status == 2
    assert "error[config.missing_package]: " in done.err


def test_serving_needs_a_folder_and_a_home(tmp_path, monkeypatch):
    place = Workplace(tmp_path)
    (tmp_path / "data").touch()
    done = place.run(python=("-m", "flows.serve"))
    assert (done.status, "error[config.path]: " in done.err) == (2, True)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    with pytest.raises(ConfigError, match="HOME: environment variable not set"):
        profiles_path()


def test_a_pool_of_kubernetes_gets_deployments_of_the_image(reporting, prefect_server):
    for name in ("deployments", "flows"):
        (reporting.folder / name).symlink_to(CHECKOUT / name)
    template = CHECKOUT / "deployments/kubernetes/base-job-template.json"
    pool = {"name": "k", "type": "kubernetes"}
    pool["base_job_template"] = json.loads(template.read_text())
    prefect_server.post("/work_pools/", pool)
    done = reporting.run("--pool", "k", python=("-m", "flows.deploy"), LARDER_TEAM="k")
    assert done.status == 0, done.err
    deployment = prefect_server.get("/deployments/name/prepare/imagenet-k")
    where = {"prefect.deployments.steps.set_working_directory": {"directory": IMAGE_DIRECTORY}}
    assert deployment["pull_steps"] == [where]
