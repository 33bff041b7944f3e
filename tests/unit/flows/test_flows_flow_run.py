"""The plan of a command is used only by the flow run that it was made for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from httpx import ConnectError, HTTPStatusError, Request, Response

from larder.cli.command import Operation
from larder.progress import StageTimes


@pytest.mark.parametrize(("same", "called"), [(True, "execute"), (False, "compose")])
def test_a_plan_serves_its_own_settings_only(same: bool, called: str) -> None:
    from flows.runs import flow_run  # sets up Prefect's logging, which other tests do not expect

    def record(name: str) -> Any:
        return lambda *arguments: {"called": name, "arguments": arguments[:-1]}

    operation = Operation("settings", 1, record("compose"), record("execute"), list, list)
    planned = "settings" if same else "others", ("plan", "job")
    log: Any = SimpleNamespace(progress=StageTimes())
    with flow_run._setting(flow_run._planned, planned):
        document = flow_run._document(operation, log)
    assert document == {"called": called, "arguments": planned[1] if same else ()}


@pytest.mark.parametrize(
    ("status", "path", "part"),
    [
        (404, "", "end PREFECT_API_URL with /api"),
        (404, "/api", "that its server runs"),
        (401, "/api", "PREFECT_API_AUTH_STRING"),
        (403, "", "PREFECT_API_AUTH_STRING"),
        (None, "/api", "that its server runs"),
    ],
)
def test_advice_follows_from_the_answer_of_the_server(
    status: int | None, path: str, part: str
) -> None:
    from flows.runs.flow_run import _advice

    url = f"http://127.0.0.1:4200{path}"
    error: Exception = ConnectError("refused")
    if status:
        request = Request("GET", url)
        error = HTTPStatusError("no", request=request, response=Response(status, request=request))
    assert part in _advice(error, url)
