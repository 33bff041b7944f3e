"""The plan of a command is used only by the flow run that it was made for."""

from types import SimpleNamespace
from typing import Any

import pytest

from larder.cli.command import Operation
from larder.progress import StageTimes


@pytest.mark.parametrize(("same", "called"), [(True, "execute"), (False, "compose")])
def test_a_plan_serves_its_own_settings_only(same, called):
    from flows.runs import flow_run  # sets up Prefect's logging, which other tests do not expect

    def record(name: str) -> Any:
        return lambda *arguments: {"called": name, "arguments": arguments[:-1]}

    operation = Operation("settings", 1, record("compose"), record("execute"), list, list)
    planned = "settings" if same else "others", ("plan", "job")
    log: Any = SimpleNamespace(progress=StageTimes())
    with flow_run._setting(flow_run._planned, planned):
        document = flow_run._document(operation, log)
    assert document == {"called": called, "arguments": planned[1] if same else ()}
