"""Location of the version that a job of Determined trains on, from the emitted config."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final

from larder.errors import ConfigError

CONFIG: Final = "DET_EXPERIMENT_CONFIG"
"""The experiment's config as JSON, in every container of a trial; ``user_data`` of Determined's
ClusterInfo is its ``data``. Source: harness/determined/_info.py, release 0.38."""


def emitted_location() -> str:
    """Return ``data.location`` of the experiment that runs this process.

    Raises:
        ConfigError: ``config.missing_variable``: not in a trial of Determined;
            ``config.invalid_value``: the config was not emitted by Larder; ``config.path``: the
            startup hook did not run.
    """
    text = os.environ.get(CONFIG)
    if not text:
        message = f"{CONFIG} is not set: this is no job with a config of Larder"
        hint = "give the address of the dataset, such as s3://bucket/larder/imagenet@latest"
        raise ConfigError("config.missing_variable", message, hint=hint)
    data = _emitted()
    location: str | None = data.get("location")
    if location is None:
        hint = "submit the experiment.yaml that preparing wrote, or give the dataset's address"
        message = "the experiment's config has no data.location"
        raise ConfigError("config.invalid_value", message, where=CONFIG, hint=hint)
    if "bucket" in data and "path" in data and not os.path.isdir(location):
        message = "the version was not downloaded: startup-hook.sh did not run here"
        hint = "submit it with the model code: det experiment create --include startup-hook.sh"
        raise ConfigError("config.path", message, where=location, hint=hint)
    return location


def check_emitted(version: str, digest: str) -> None:
    """Refuse a version that differs from the experiment's config, if Larder emitted the config."""
    emitted = _emitted()
    for name, opened in (("version", version), ("digest", digest)):
        if emitted.get(name, opened) not in (opened, ""):
            message = f"data.{name} is {emitted[name]}, but that of the version opened is {opened}"
            hint = "remove LARDER_LOCATION from the image, or submit the config that names the same"
            raise ConfigError("config.invalid_value", message, where=CONFIG, hint=hint)


def _emitted() -> Mapping[str, Any]:
    """Return ``data`` of the experiment; empty if Larder did not emit the config."""
    try:
        data: Mapping[str, Any] = json.loads(os.environ.get(CONFIG, ""))["data"]
        return data if isinstance(data["location"], str) else {}
    except (ValueError, LookupError, TypeError):
        return {}
