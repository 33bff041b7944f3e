"""Emits the configs of a published version, without preparing anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from larder.pipeline.configs import emit_configs, location, submit_command
from larder.pipeline.settings import Settings
from larder.progress import NullProgress
from larder.segments.stores import storage_of
from larder.versions.find import published_version


def emit(settings: Settings, name: str) -> dict[str, Any]:
    """Write the configs of a version like the last stage of a run; return a JSON document.

    Args:
        settings: Settings of the run that would prepare the dataset.
        name: ID of the version, at least four of its first digits, or a tag.

    Raises:
        ConfigError: ``version.missing``: no such version or tag; ``version.ambiguous``: several
            versions begin so; or as in the plan of a run.
        DamageError: A document of the version is damaged or missing.
    """
    store = storage_of(settings.dataset, settings.cluster)
    version = published_version(store, settings.dataset.name, name)
    written = emit_configs(settings, version, progress=NullProgress(), renew=True)
    return {
        "dataset": settings.dataset.name,
        "version": version.id,
        "location": location(settings, version.id),
        "configs": [{"path": str(file.path), "changed": file.changed} for file in written],
        "replaced": [place for file in written for place in file.replaced],
        "command": submit_command(settings, written),
    }


def emit_lines(document: Mapping[str, Any]) -> list[str]:
    """List the document as lines for people."""
    states = {True: "written", False: "current"}
    return [
        f"{document['dataset']} version {document['version']}",
        f"  at       {document['location']}",
        *(f"  config   {each['path']} ({states[each['changed']]})" for each in document["configs"]),
        *(f"  replaced {place}, which the template has" for place in document["replaced"]),
        *([f"  submit   {document['command']}"] if document["command"] else ()),
    ]
