"""Prepares a dataset, and draws the card of the version that was built."""

from __future__ import annotations

from typing import Any

from larder.jobs.step_runner import Execute, Runner, Start
from larder.pipeline.preparing import prepare
from larder.pipeline.settings import Settings


def prepare_with_card(
    settings: Settings, runner: Runner, *, plan_only: bool = False, start: Start | None = None
) -> dict[str, Any]:
    """Prepare a dataset, and draw the card of the version if one was built."""

    def start_with_card(execute: Execute) -> dict[str, Any]:
        def with_card(runner: Runner) -> dict[str, Any]:
            return _with_card(settings, execute(runner), runner)

        return start(with_card) if start else with_card(runner)

    return prepare(settings, runner, plan_only=plan_only, start=start_with_card)


def _with_card(settings: Settings, document: dict[str, Any], runner: Runner) -> dict[str, Any]:
    if document["status"] != "built":
        return document
    from larder.card.draw import Drawn, draw_card  # a fortieth of the time of an unchanged run

    drawn: Drawn = runner.run(draw_card, settings, document["version"])
    document |= {"seconds": round(runner.times.seconds(), 3), "stages": runner.times.stages()}
    if drawn.warning:
        document["warnings"].append({"code": "card", "message": drawn.warning})
        return document
    return {**document, "card": drawn.url}
