"""Which version a job of Determined trains on, from the config that Larder emitted."""

from __future__ import annotations

import json
import os
from typing import Final

from larder.errors import ConfigError

CONFIG: Final = "DET_EXPERIMENT_CONFIG"
"""The experiment's config as JSON, in every container of a trial; ``user_data`` of Determined's
ClusterInfo is its ``data``. Source: harness/determined/_info.py, release 0.38."""


def emitted_location() -> str:
    """``data.location`` of the experiment that runs this process.

    Raises:
        ConfigError: ``config.missing_variable``: not in a trial of Determined;
            ``config.invalid_value``: its config was not emitted by Larder; ``config.path``: the
            startup hook did not run.
    """
    text = os.environ.get(CONFIG)
    if not text:
        message = f"{CONFIG} is not set: this is no job with a config of Larder"
        hint = "give the address of the dataset, such as s3://bucket/larder/imagenet@latest"
        raise ConfigError("config.missing_variable", message, hint=hint)
    try:
        data = json.loads(text)["data"]
        location = data["location"]
    except (ValueError, LookupError, TypeError):
        location = None
    if not isinstance(location, str):
        hint = "submit the experiment.yaml that preparing wrote, or give the dataset's address"
        message = "the experiment's config has no data.location"
        raise ConfigError("config.invalid_value", message, where=CONFIG, hint=hint)
    if "bucket" in data and "path" in data and not os.path.isdir(location):
        message = "the version was not downloaded: startup-hook.sh did not run here"
        hint = "submit it with the model code: det experiment create --include startup-hook.sh"
        raise ConfigError("config.path", message, where=location, hint=hint)
    return location
