"""Hand a version over: render, validate and write the experiment config."""

from __future__ import annotations

from prefect import task

from larder.experiments.emit import Written
from larder.pipeline.emit import emit_configs
from larder.pipeline.settings import Settings
from larder.versions.documents import VersionDocument
from tasks._options import RETRIED, cancelled_when_stopped
from tasks._progress import current_progress

__all__ = ["emit"]


@task(name="emit", task_run_name="config for {settings.cluster.name}", **RETRIED)
@cancelled_when_stopped
def emit(settings: Settings, version: VersionDocument) -> tuple[Written, ...]:
    """Write the config where its bytes differ."""
    return emit_configs(settings, version, current_progress())
