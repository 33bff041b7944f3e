"""Render, validate and write the experiment config of a version."""

from __future__ import annotations

from prefect import task

from larder.experiments.emit import Written
from larder.pipeline import configs as emit
from larder.pipeline.settings import Settings
from larder.versions.documents import VersionDocument
from tasks._options import RETRIED, cancelled_when_stopped
from tasks.progress import current_progress


@task(name="emit", task_run_name="config for {settings.cluster.name}", **RETRIED)
@cancelled_when_stopped
def emit_configs(settings: Settings, version: VersionDocument) -> tuple[Written, ...]:
    """Write the config, if its bytes differ."""
    return emit.emit_configs(settings, version, progress=current_progress())
