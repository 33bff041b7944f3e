"""``make deploy``: what people have changed in Prefect stays, and what is gone is left out."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from prefect_server import PrefectServer
from test_dataset_limits import proxy

from tests.support.commands import CHECKOUT, Finished, Workplace
from tests.support.http_server import serving

pytestmark = pytest.mark.exhaustive
DEPLOY = ("-m", "flows.deploy")
FILE = "deployments/prefect.yaml"


@pytest.fixture
def team(
    reporting: Workplace, prefect_server: PrefectServer, request: pytest.FixtureRequest
) -> str:
    """A checkout, and the name of its work pool and of its team."""
    name = re.sub(r"[^a-z]+", "-", request.node.name)[5:30].strip("-")
    (reporting.folder / "deployments").mkdir()
    (reporting.folder / FILE).write_text((CHECKOUT / FILE).read_text())
    (reporting.folder / "flows").symlink_to(CHECKOUT / "flows")
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


def test_what_people_have_changed_stays(reporting, prefect_server, team, deploy):
    def read(name: str) -> tuple[str, dict[str, Any], dict[str, dict[str, Any]]]:
        deployment = prefect_server.get(f"/deployments/name/{name}-{team}")
        path = f"/deployments/{deployment['id']}"
        return path, deployment, {each["slug"]: each for each in deployment["schedules"]}

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

    edit(reporting, "interval: 3600", "interval: 7200")
    edit(reporting, "  - {slug: weekly, cron", "  - {slug: monthly, cron")
    done = deploy()
    assert (
        f"no longer in the file, but in Prefect: the schedule weekly of verify/verify-{team}"
        in (done.out)
    )
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
        assert schedules["hourly"]["schedule"] == {
            **hourly["hourly"]["schedule"],
            "interval": 7200.0,
        }
        if not again:
            deploy()


def test_a_deleted_example_is_left_out_and_named(reporting, prefect_server, team, deploy):
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


def test_what_another_checkout_makes_at_the_same_time_is_there(
    reporting, prefect_server, team, deploy
):
    with suppress(AssertionError):  # it is there already
        prefect_server.post("/v2/concurrency_limits/", {"name": "larder-digits", "limit": 1})
    with serving(proxy(prefect_server, unseen="/v2/concurrency_limits/larder-")) as url:
        deploy(PREFECT_API_URL=f"{url}/api")


def test_a_pool_whose_jobs_would_have_no_image_is_refused(reporting, prefect_server, team):
    template = {
        "job_configuration": {"image": "{{ image }}"},
        "variables": {"properties": {"image": {"type": "string"}}},
    }
    pool = {"name": f"{team}-docker", "type": "docker", "base_job_template": template}
    prefect_server.post("/work_pools/", pool)
    refused = reporting.run("--pool", f"{team}-docker", python=DEPLOY)
    assert refused.status == 2
    assert f"error[config.work_pool]: POOL: the work pool {team}-docker has no " in refused.err
