"""The plan of a command is used only by the flow run that it was made for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from larder.pipeline import prepare as composition
from larder.progress import StageTimes
from tests.support.runs import run_settings


@pytest.mark.parametrize(("same", "called"), [(True, "execute"), (False, "prepare")])
def test_a_plan_serves_its_own_settings_only(
    same: bool, called: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import prepare_flow  # sets up Prefect's logging, which other tests do not expect

    asked = run_settings(tmp_path / "source", tmp_path / "storage", tmp_path / "out")
    theirs = asked if same else replace(asked, output=tmp_path / "elsewhere")
    plan = SimpleNamespace(source_state=SimpleNamespace(settings=theirs))
    calls: list[str] = []

    def record(name: str) -> Any:
        return lambda *_arguments: calls.append(name) or {}

    monkeypatch.setattr(composition, "execute", record("execute"))
    monkeypatch.setattr(composition, "prepare", record("prepare"))
    token = prepare_flow._planned.set(cast("Any", (plan, object())))
    try:
        prepare_flow._prepare(asked, StageTimes())
    finally:
        prepare_flow._planned.reset(token)
    assert calls == [called]
