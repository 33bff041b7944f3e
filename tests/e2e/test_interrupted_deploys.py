"""A deploy that is interrupted between two requests, and then repeated, ends as any other."""

import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from prefect.settings import PREFECT_API_URL, PREFECT_CLIENT_MAX_RETRIES, temporary_settings
from required import nightly
from ruamel.yaml import YAML

from flows.runs.deployments import FILE, Deployed, deploy_all
from tests.support.errors import larder_error
from tests.support.prefect_server import PrefectServer
from tests.support.processes import CHECKOUT

pytestmark = pytest.mark.push

POOL = "interrupted"
REQUESTS = 7
"""More than these are interrupted, each in turn; where there is a deployment, every third."""

OF_ONE = {"id", "created", "updated", "version_id", "last_polled", "anchor_date", "deployment_id"}
OF_ONE |= {"flow_id", "work_queue_id", "concurrency_limit_id"}
"""Fields that differ between two deployments of an entry."""


@pytest.fixture
def checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prefect_server: PrefectServer
) -> Iterator[Path]:
    """The working directory, with the flows and one entry; its server is the session's."""
    for name in ("flows", "configs/datasets/digits.yaml", "configs/clusters/local.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).symlink_to(CHECKOUT / name)
    document = YAML(typ="safe").load(CHECKOUT / FILE)
    (tmp_path / "deployments").mkdir()
    document["deployments"] = document["deployments"][:1]
    (tmp_path / FILE).write_text(json.dumps(document))
    monkeypatch.chdir(tmp_path)
    with suppress(AssertionError):  # it is there already
        prefect_server.post("/work_pools/", {"name": POOL, "type": "process"})
    with temporary_settings({PREFECT_API_URL: prefect_server.url}):
        yield tmp_path


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, BaseException], None]:
    """Makes every request from number N on raise an error before it is sent."""
    left = math.inf
    error: BaseException = KeyboardInterrupt()

    def count() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise error

    send, send_async = httpx.Client.send, httpx.AsyncClient.send

    def counted(self: httpx.Client, *arguments: Any, **options: Any) -> httpx.Response:
        count()
        return send(self, *arguments, **options)

    async def counted_async(
        self: httpx.AsyncClient, *arguments: Any, **options: Any
    ) -> httpx.Response:
        count()
        return await send_async(self, *arguments, **options)

    monkeypatch.setattr(httpx.Client, "send", counted)
    monkeypatch.setattr(httpx.AsyncClient, "send", counted_async)

    def before(number: float, with_error: BaseException) -> None:
        nonlocal left, error
        left, error = number, with_error

    return before


def deploy(team: str, **options: Any) -> Deployed:
    before = list(sys.path)
    try:
        return deploy_all(POOL, team=team, **options)
    finally:
        assert sys.path == before


def shown(server: PrefectServer, team: str) -> str:
    def common(value: Any) -> Any:
        if isinstance(value, list):
            return [common(each) for each in value]
        if isinstance(value, dict):
            return {key: common(each) for key, each in value.items() if key not in OF_ONE}
        return value

    digits = server.get(f"/deployments/name/prepare/digits-{team}")
    digits["global_concurrency_limit"].pop("name")  # has the ID of the deployment
    for each in digits["schedules"]:
        each["slug"] = each["slug"].replace(each["id"], "ITS-ID")
    digits["schedules"].sort(key=lambda schedule: schedule["slug"])
    return json.dumps(common(digits)).replace(team, "TEAM")


def change(checkout: Path) -> None:
    document = json.loads((checkout / FILE).read_text())
    digits = document["deployments"][0]
    digits["schedules"][0]["interval"] = 1800
    digits["schedules"].append({"slug": "weekly", "cron": "0 5 * * 0", "active": False})
    (checkout / FILE).write_text(json.dumps(document))


def add_schedule(server: PrefectServer, team: str) -> None:
    """Add a schedule as the UI does: without a slug."""
    digits = server.get(f"/deployments/name/prepare/digits-{team}")
    added = {"schedule": {"cron": "0 4 * * *"}, "active": True}
    server.post(f"/deployments/{digits['id']}/schedules", [added])


@pytest.mark.parametrize("existing", [False, True])
def test_an_interrupted_deploy_is_completed_by_the_next_one(
    checkout, prefect_server, interrupt, existing
):
    original = (checkout / FILE).read_text()

    def deployed(team: str, interrupted_at: float) -> bool:
        """Deploy, interrupted or not, and again; returns whether it was interrupted."""
        (checkout / FILE).write_text(original)
        if existing:
            deploy(team)
            add_schedule(prefect_server, team)
            change(checkout)
        interrupt(interrupted_at, KeyboardInterrupt())
        try:
            deploy(team)
        except KeyboardInterrupt:
            interrupt(math.inf, KeyboardInterrupt())
            deploy(team, changed_only=True)
            return True
        interrupt(math.inf, KeyboardInterrupt())
        return False

    kind = "old" if existing else "new"
    assert not deployed(f"{kind}-whole", math.inf)
    expected = shown(prefect_server, f"{kind}-whole")
    if existing:
        assert '"interval": 1800.0' in expected
    number = 1
    while deployed(f"{kind}-{number}", number):
        assert shown(prefect_server, f"{kind}-{number}") == expected, number
        number += 3 if existing and not nightly() else 1
    assert number > REQUESTS


@pytest.mark.parametrize("number", [3, 8])
def test_a_server_that_is_gone_is_one_error_of_its_client(checkout, interrupt, number):
    interrupt(number, httpx.ConnectError("gone"))
    with temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 0}), pytest.raises(httpx.HTTPError):
        deploy("gone")


def test_a_deployment_without_a_record_gets_the_form_and_schedules_of_the_file(
    checkout, prefect_server
):
    deploy("bare")
    identity = prefect_server.get("/deployments/name/prepare/digits-bare")["id"]
    bare = {"parameter_openapi_schema": {"type": "object", "properties": {}}}
    prefect_server.patch(f"/deployments/{identity}", bare)
    change(checkout)
    deploy("peer")
    assert deploy("bare", changed_only=True).names == ("prepare/digits-bare",)
    schema = prefect_server.get("/deployments/name/prepare/digits-bare")["parameter_openapi_schema"]
    assert "x-larder-team" in schema, "Prefect's command takes the schema from another function now"
    assert shown(prefect_server, "bare") == shown(prefect_server, "peer")
    assert not deploy("bare", changed_only=True).names


def test_what_the_file_has_lost_is_named(checkout, prefect_server):
    deploy("first")
    document = json.loads((checkout / FILE).read_text())
    document["deployments"][0]["name"] = "numbers"
    (checkout / FILE).write_text(json.dumps(document))
    for options in ({}, {"changed_only": True}):
        (line,) = deploy("first", **options).left_out
        assert line.startswith("no longer in the file, but in Prefect: prepare/digits-first ")
    assert not deploy("second").left_out, "those of another team"


@pytest.mark.parametrize(
    ("field", "value", "why"),
    [
        ("schedules", [{"slug": "never", "active": False}], "schedules.0.schedule"),
        ("parameters", {"dataset": "digits", "plan": "perhaps"}, "boolean"),
        ("build", [], "build: Extra inputs"),
        ("entrypoint", "my-flows/prepare.py:prepare", "my-flows"),
        ("entrypoint", "flows/none.py:prepare", "No module named 'flows.none'"),
    ],
)
def test_an_entry_that_prefect_cannot_deploy_is_named(checkout, prefect_server, field, value, why):
    document = json.loads((checkout / FILE).read_text())
    document["deployments"][0][field] = value
    (checkout / FILE).write_text(json.dumps(document))
    with larder_error("run.server", str(FILE)) as refused:
        deploy("odd")
    assert "cannot deploy prepare/digits-odd" in str(refused.value)
    assert why in str(refused.value)
