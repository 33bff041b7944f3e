"""``make deploy``: what it refuses, and that what people have changed in Prefect stays."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from ruamel.yaml import YAML

from flows.runs.deployments import IMAGE_DIRECTORY
from tests.support.commands import CHECKOUT, Finished, Workplace
from tests.support.http_server import QuietHandler, serving
from tests.support.prefect_server import PrefectServer

pytestmark = pytest.mark.push

DEPLOY = ("-m", "flows.deploy")
FILE = "deployments/prefect.yaml"


@pytest.fixture
def team(
    reporting: Workplace, prefect_server: PrefectServer, request: pytest.FixtureRequest
) -> str:
    """The name of a work pool and of a team; the place has the flows, and the shipped file."""
    (reporting.folder / "deployments").mkdir()
    (reporting.folder / FILE).write_text((CHECKOUT / FILE).read_text())
    (reporting.folder / "flows").symlink_to(CHECKOUT / "flows")
    name = re.sub(r"[^a-z]+", "-", request.node.name)[5:30].strip("-")
    reporting.environment["LARDER_TEAM"] = name
    prefect_server.post("/work_pools/", {"name": name, "type": "process"})
    return name


@pytest.fixture
def deploy(reporting: Workplace, team: str) -> Callable[..., Finished]:
    def run(*flags: str, **environment: str) -> Finished:
        done = reporting.run("--pool", team, *flags, python=DEPLOY, **environment)
        assert done.status == 0, done.err
        return done

    return run


def edit(place: Workplace, old: str, new: str) -> None:
    text = (place.folder / FILE).read_text()
    assert old in text
    (place.folder / FILE).write_text(text.replace(old, new))


def only(place: Workplace, *names: str) -> None:
    """Leave these in the file: deploying all takes twice as long."""
    document = YAML(typ="safe").load(place.folder / FILE)
    entries = [each for each in document["deployments"] if each["name"] in names]
    (place.folder / FILE).write_text(json.dumps({**document, "deployments": entries}, default=str))


def test_what_people_have_changed_stays(reporting, prefect_server, team, deploy):
    def read(name: str) -> tuple[str, dict[str, Any], dict[str, dict[str, Any]]]:
        deployment = prefect_server.get(f"/deployments/name/{name}-{team}")
        path = f"/deployments/{deployment['id']}"
        return path, deployment, {each["slug"]: each for each in deployment["schedules"]}

    only(reporting, "digits", "imagenet", "refresh", "verify")
    deploy()
    path, _, schedules = read("prepare/imagenet")
    prefect_server.patch(path, {"paused": True})
    edited = {"cron": "30 7 * * 1", "timezone": "Europe/Berlin"}
    prefect_server.patch(
        f"{path}/schedules/{schedules['nightly']['id']}", {"schedule": edited, "active": True}
    )
    path, _, schedules = read("refresh/refresh")
    prefect_server.delete(f"{path}/schedules/{schedules['nightly']['id']}")
    path, _, hourly = read("prepare/digits")
    prefect_server.patch(f"{path}/schedules/{hourly['hourly']['id']}", {"active": True})
    prefect_server.post(f"{path}/schedules", [{"schedule": {"cron": "0 4 * * *"}}])

    edit(reporting, '"interval": 3600', '"interval": 7200')
    edit(reporting, '"slug": "weekly"', '"slug": "monthly"')
    gone = f"no longer in the file, but in Prefect: the schedule weekly of verify/verify-{team}"
    assert gone in deploy().out
    for again in range(2):
        _, imagenet, nightly = read("prepare/imagenet")
        assert imagenet["paused"]
        assert nightly["nightly"]["schedule"] == {**edited, "day_or": True}
        assert nightly["nightly"]["active"]
        assert read("refresh/refresh")[2] == {}
        assert read("verify/verify")[2].keys() == {"weekly", "monthly"}
        _, digits, schedules = read("prepare/digits")
        assert not digits["paused"]
        assert len(schedules) == 2
        assert schedules["hourly"]["active"]
        expected = {**hourly["hourly"]["schedule"], "interval": 7200.0}
        assert schedules["hourly"]["schedule"] == expected
        if not again:
            deploy()


def test_a_deleted_example_is_left_out_and_named(reporting, prefect_server, team, deploy):
    only(reporting, "digits", "files", "verify", "refresh")
    (reporting.folder / "configs/datasets/digits.yaml").unlink()
    done = deploy()
    gone = "as there is no configs/datasets/digits.yaml"
    assert f"not deployed: prepare/digits, {gone}" in done.out
    assert f"not deployed: a schedule of verify/verify, {gone}" in done.out
    assert not prefect_server.has(f"prepare/digits-{team}")
    refresh = prefect_server.get(f"/deployments/name/refresh/refresh-{team}")
    assert refresh["parameters"] == {"cluster": "local"}
    with pytest.raises(AssertionError, match=r"datset.*was unexpected"):
        prefect_server.submit(f"prepare/files-{team}", {"dataset": "files", "datset": "files"})


def test_another_checkout_takes_nothing_over_without_a_word(
    reporting, prefect_server, team, deploy
):
    only(reporting, "digits", "deploy")
    deploy()
    elsewhere = ("--directory", "/srv/larder")
    refused = reporting.run("--pool", team, *elsewhere, python=DEPLOY)
    assert refused.status == 2
    assert f"error[config.deployment]: PREFECT_API_URL: prepare/digits-{team} is " in refused.err
    deploy(*elsewhere, LARDER_TEAM=f"{team}-2")
    path = "/deployments/name/deploy/deploy-"
    assert prefect_server.get(path + team)["parameters"]["directory"] == str(reporting.folder)
    second = prefect_server.get(f"{path}{team}-2")["parameters"]
    assert second == {"pool": team, "directory": "/srv/larder", "team": f"{team}-2"}
    deploy(*elsewhere, "--replace")
    assert prefect_server.get(path + team)["parameters"]["directory"] == "/srv/larder"


class NotOurs(QuietHandler):
    """Answers as a Prefect server of another major version, or as one that asks for a password."""

    version = b'"2.20.3"'

    def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
        answers = {"/api/health": b"true", "/api/admin/version": self.version}
        status = 404 if self.version else 401
        body = answers.get(self.path)
        self.answer(200 if body else status, body or b"{}")


class Closed(NotOurs):
    version = b""


def test_deploying_needs_a_server_and_a_pool(reporting, prefect_server, team):
    template = {
        "job_configuration": {"image": "{{ image }}"},
        "variables": {"properties": {"image": {"type": "string"}}},
    }
    pool = {"name": f"{team}-docker", "type": "docker", "base_job_template": template}
    prefect_server.post("/work_pools/", pool)

    def refused(code: str, pool: str = "p", **environment: str) -> str:
        done = reporting.run("--pool", pool, python=DEPLOY, **environment)
        assert (done.status != 0, f"error[{code}]: " in done.err) == (True, True), done.err
        return done.err

    assert "has no image" in refused("config.work_pool", f"{team}-docker")
    refused("config.work_pool", "no-such-pool")
    refused("config.invalid_value", PREFECT_API_URL="")
    with serving(Closed) as url:
        told = refused("run.server", PREFECT_API_URL=f"{url}/api")
        assert "set PREFECT_API_AUTH_STRING" in told
    with serving(NotOurs) as url:
        assert "server: 2.20.3" in refused("run.server", PREFECT_API_URL=f"{url}/api")
        old = reporting.run("--dataset", "imagenet", PREFECT_API_URL=f"{url}/api")
        assert "server: 2.20.3" in old.err


def test_what_has_changed_is_deployed_and_may_move_to_another_pool(
    reporting, prefect_server, team, deploy
):
    only(reporting, "imagenet", "refresh", "deploy")
    done = deploy()
    assert f"  prepare/imagenet-{team}\n" in done.out
    assert "no worker is online" in done.out
    assert "are current" in deploy("--changed-only").out
    refresh = prefect_server.get(f"/deployments/name/refresh/refresh-{team}")
    there = f"/deployments/{refresh['id']}/schedules"
    prefect_server.post(there, [{"schedule": {"cron": "0 4 * * *"}, "active": True}])
    prefect_server.patch(f"{there}/{refresh['schedules'][0]['id']}", {"active": True})
    (reporting.folder / "configs/datasets/mine.yaml").write_text("source: {url: x}\n")
    assert f"  prepare/imagenet-{team}\n" in deploy("--changed-only").out
    schedules = prefect_server.get(f"/deployments/{refresh['id']}")["schedules"]
    assert sorted((each["active"], each["schedule"]["cron"]) for each in schedules) == [
        (True, "0 3 * * *"),
        (True, "0 4 * * *"),
    ]
    prefect_server.post("/work_pools/", {"name": f"{team}-q", "type": "process"})
    assert reporting.run("--pool", f"{team}-q", "--replace", python=DEPLOY).status == 0
    deployed = prefect_server.get(f"/deployments/name/deploy/deploy-{team}")
    there = {"pool": f"{team}-q", "directory": str(reporting.folder), "team": team}
    assert deployed["parameters"] == there


def test_a_pool_of_kubernetes_gets_deployments_of_the_image(reporting, prefect_server, team):
    only(reporting, "imagenet")
    template = CHECKOUT / "deployments/kubernetes/base-job-template.json"
    pool = {"name": "k", "type": "kubernetes"}
    pool["base_job_template"] = json.loads(template.read_text())
    prefect_server.post("/work_pools/", pool)
    done = reporting.run("--pool", "k", python=DEPLOY)
    assert done.status == 0, done.err
    deployment = prefect_server.get(f"/deployments/name/prepare/imagenet-{team}")
    where = {"prefect.deployments.steps.set_working_directory": {"directory": IMAGE_DIRECTORY}}
    assert deployment["pull_steps"] == [where]


def test_what_differs_is_listed_and_stays(reporting, prefect_server, team, deploy):
    def read(name: str) -> dict[str, Any]:
        deployment: dict[str, Any] = prefect_server.get(f"/deployments/name/{name}-{team}")
        return deployment

    only(reporting, "digits", "imagenet", "verify")
    deploy()
    assert deploy("--diff").out == "the server is as the file says\n"
    imagenet, digits = read("prepare/imagenet"), read("prepare/digits")
    prefect_server.patch(f"/deployments/{imagenet['id']}", {"paused": True, "tags": ["mine"]})
    (nightly,), (hourly,) = imagenet["schedules"], digits["schedules"]
    path = f"/deployments/{imagenet['id']}/schedules/{nightly['id']}"
    prefect_server.patch(path, {"schedule": {"interval": 60}})
    prefect_server.delete(f"/deployments/{digits['id']}/schedules/{hourly['id']}")
    added = {"schedule": {"interval": 60}, "active": False}
    prefect_server.post(f"/deployments/{digits['id']}/schedules", [added])
    edit(reporting, '"name": "verify"', '"name": "check"')
    before = [read("prepare/imagenet"), read("prepare/digits")]
    lines = deploy("--diff").out.splitlines()
    ours = f"prepare/imagenet-{team}"
    assert f"in Prefect, paused of {ours} is true" in lines
    assert f'in Prefect, tags of {ours} is ["mine"]' in lines
    assert f"in Prefect, cron of the schedule nightly of {ours} is null" in lines
    assert f"only in the file: the schedule hourly of prepare/digits-{team}" in lines
    assert f"only in the file: verify/check-{team}" in lines
    starts = "only in Prefect: the schedule", "no longer in the file, but in Prefect: verify/verify"
    assert all(any(line.startswith(start) for line in lines) for start in starts)
    assert [read("prepare/imagenet"), read("prepare/digits")] == before


def test_runs_of_a_team_know_it(reporting, prefect_server, team, deploy):
    only(reporting, "digits")
    job = '"work_pool": {"job_variables": {"env": {"SOURCE": "{{ $HOME }}"}}, '
    edit(reporting, '"work_pool": {', job)
    deploy(HOME="/home/of-the-team")
    digits = prefect_server.get(f"/deployments/name/prepare/digits-{team}")
    environment = {"LARDER_TEAM": team, "SOURCE": "/home/of-the-team"}
    assert digits["job_variables"] == {"env": environment}
    limit = prefect_server.get(f"/v2/concurrency_limits/larder-digits@{team}")
    assert limit["limit"] == 1
