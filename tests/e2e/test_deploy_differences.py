"""``make deploy ARGS=--diff`` lists what the server and the file do not share."""

from __future__ import annotations

from typing import Any

import pytest
from test_deploying import deploy, edit, only, team

pytestmark = pytest.mark.push
__all__ = ["deploy", "team"]  # fixtures


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
