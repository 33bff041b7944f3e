"""What people do with ``make serve``: start runs by their forms, cancel them, lose a worker."""

import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import pytest
from serving import FAST, OBJECTS, ON_THEIR_WAY, Run, Serving, serving_in

from flows.runs.prefect_settings import profiles_path
from larder.errors import ConfigError
from tests.support.commands import CHECKOUT, Workplace
from tests.support.http_server import Ask, Say, answering
from tests.support.processes import is_running, wait_until

NEVER_DONE = [*FAST, "cluster.copy.max_bytes_per_second=3 kB"]
"""As good as that: minutes, after which no test waits for the run."""

pytestmark = [pytest.mark.push, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """For all tests, which leave it running; none is left of their runs and their storage."""
    with serving_in(tmp_path_factory.mktemp("served")) as serving:
        yield serving


@pytest.fixture
def serving(served: Serving) -> Serving:
    shutil.rmtree(served.place.storage, ignore_errors=True)
    return served


def state(serving: Serving, run: Run) -> dict[str, str]:
    found: dict[str, str] = serving.server.get(f"/flow_runs/{run['id']}")["state"]
    return found


def planned(serving: Serving, deployment: str) -> list[Run]:
    question = {"deployments": {"id": {"any_": [deployment]}}, "sort": "EXPECTED_START_TIME_ASC"}
    runs = serving.server.post("/flow_runs/filter", question)
    return [run for run in runs if run["auto_scheduled"]]


def cancelled(serving: Serving, run: Run) -> None:
    serving.server.post(f"/flow_runs/{run['id']}/set_state", {"state": {"type": "CANCELLING"}})
    assert serving.server.ended(run)["state_type"] == "CANCELLED"


def test_runs_that_meet_one_still_going_wait_and_find_its_work_done(serving):
    """By the limit of their dataset, or by that of the deployment whose schedule starts them."""
    form = {"dataset": "files", "advanced": {"settings": NEVER_DONE}}
    first = serving.server.submit("prepare/digits", form)
    wait_until(lambda: serving.copied() > 0)
    second = serving.start(FAST)
    serving.server.logs(second, "waiting for the limit larder-files")

    digits = serving.server.get("/deployments/name/prepare/digits")["id"]
    form = {"dataset": "files", "advanced": {"settings": FAST}}
    daily = {"schedule": {"interval": 24 * 3600}, "parameters": form}
    serving.server.post(f"/deployments/{digits}/schedules", [daily])
    wait_until(lambda: bool(planned(serving, digits)))
    third = planned(serving, digits)[0]
    now = {"type": "SCHEDULED", "state_details": {"scheduled_time": datetime.now(UTC).isoformat()}}
    serving.server.post(f"/flow_runs/{third['id']}/set_state", {"state": now})
    wait_until(lambda: state(serving, third)["name"] == "AwaitingConcurrencySlot")
    assert len(serving.processes("prefect.engine")) == 2

    cancelled(serving, first)
    ended = [serving.server.ended(run) for run in (second, third)]
    for run in ended:
        how = (run["state_type"], run["name"])
        assert how == ("COMPLETED", "prepare files for local"), run["state"]
    assert {"built", "reused"} < {tag for run in ended for tag in run["tags"]}
    limit = serving.server.get("/v2/concurrency_limits/larder-files")
    assert (limit["limit"], limit["active_slots"]) == (1, 0)

    again = serving.place.start(python=("-m", "flows.serve")).wait()
    assert again.status == 2
    assert f"config.path]: {serving.place.folder}/data/prefect" in again.err


def test_a_refresh_that_meets_another_is_cancelled(serving):
    form = {"datasets": ["files"], "advanced": {"settings": NEVER_DONE}}
    refresh = serving.server.submit("refresh/refresh", form)
    wait_until(lambda: serving.copied() > 0)
    second = serving.server.ended(serving.server.submit("refresh/refresh", form))
    assert second["state_type"] == "CANCELLED", second["state"]
    cancelled(serving, refresh)


def test_the_run_of_a_worker_that_dies_ends_and_the_next_one_continues(serving):
    run = serving.in_the_middle()
    (process,) = serving.processes("prefect.engine")
    (worker,) = serving.processes("worker start")
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    later = {"type": "SCHEDULED", "state_details": {"scheduled_time": tomorrow}}
    pending = serving.server.submit("prepare/digits", {"dataset": "digits"}, state=later)
    serving.server.post(f"/flow_runs/{pending['id']}/set_state", {"state": {"type": "PENDING"}})
    lost = serving.server.submit("verify/verify", {"dataset": "files"}, state=later)
    began = {"state": {"type": "RUNNING"}, "force": True}
    serving.server.post(f"/flow_runs/{lost['id']}/set_state", began)
    serving.server.patch(f"/flow_runs/{lost['id']}", {"infrastructure_pid": str(worker)})
    os.kill(worker, signal.SIGKILL)
    ended = serving.server.ended(run)
    assert ended["state_type"] == "CRASHED", ended["state"]
    wait_until(lambda: not is_running(process))
    serving.running.read_until("the worker ended with status -9; starting another one")
    assert serving.server.ended(pending)["state_type"] == "CRASHED"
    digits = serving.server.get("/deployments/name/prepare/digits")
    assert digits["global_concurrency_limit"]["active_slots"] == 0
    serving.check_continued()
    assert serving.server.ended(lost)["state_type"] == "CRASHED"


def test_a_server_that_dies_is_started_again_and_its_run_goes_on(serving):
    run = serving.in_the_middle([*FAST, "cluster.copy.max_bytes_per_second=600 kB"])
    (server,) = serving.processes("server start")
    os.kill(server, signal.SIGKILL)
    serving.running.read_until("the server ended with status -9; starting another one")
    wait_until(serving.server.answers)
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
    serving.check_continued(unknown=ON_THEIR_WAY if number == signal.SIGINT else OBJECTS)


def test_the_automations_of_the_page(serving):
    """With the webhook and the dataset of this test."""
    page = (CHECKOUT / "docs/how-to/operating-prefect.md").read_text()
    alerts, training = re.findall(r"^```python\n(.*?)^```", page, re.M | re.S)
    place, server = serving.place, serving.server
    source = place.folder / "growing"
    source.mkdir()
    (source / "0.bin").write_bytes(b"0")
    flow = server.post("/flows/", {"name": "train"})
    trainer = server.post("/deployments/", {"name": "imagenet", "flow_id": flow["id"]})
    texts: list[str] = []

    def hook(ask: Ask) -> Say:
        texts.append(json.loads(ask.body)["text"])
        return Say()

    with answering(hook) as url:
        for program in (
            alerts.replace("https://alerts.example.com/larder", url),
            training.replace("larder.dataset.imagenet", "larder.dataset.files"),
        ):
            done = place.run(python=("-c", program), PREFECT_API_URL=server.url)
            assert done.status == 0, done.err
        failed = server.ended(serving.start(["source.url=missing"]))
        assert failed["state_type"] == "FAILED"
        for number in range(2):
            (source / f"{number}.bin").write_bytes(b"%d" % number)
            ended = server.ended(serving.start([f"source.url={source}"]))
            assert ended["state_type"] == "COMPLETED", ended["state"]
        wait_until(lambda: len(texts) > 1)
    expected = {
        f"{failed['name']}: {failed['state']['message']}",
        "files has grown by 100.0 percent",
    }
    assert set(texts) == expected
    question = {"deployments": {"id": {"any_": [trainer["id"]]}}}
    wait_until(lambda: len(server.post("/flow_runs/filter", question)) > 1)
    versions = {path.name for path in place.storage.glob("larder/files/versions/*")}
    runs = server.post("/flow_runs/filter", question)
    assert {run["parameters"]["version"] for run in runs} == versions


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
