"""The job of Determined that runs this process: the location of its version, and its trial."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from larder.errors import ConfigError
from larder.readers.schedule import invalid, whole

CONFIG: Final = "DET_EXPERIMENT_CONFIG"
"""The experiment's config as JSON, in every container of a trial; ``user_data`` of Determined's
ClusterInfo is its ``data``. Source: harness/determined/_info.py, release 0.38."""


def emitted_location() -> str:
    """Return ``data.location`` of the experiment that runs this process."""
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


SECTION: Final = "data_layer"


class Trial(NamedTuple):
    """A trial of Determined, after ``batches`` batches; all ranks together have ``batch_size``."""

    id: str
    seed: int
    batches: int
    batch_size: int | None


def this_trial() -> Trial | None:
    """Return the trial from the variables that the master sets; None outside Determined.

    Determined's code: ``TrialInfo`` in harness/determined/_info.py, master/pkg/tasks/task_trial.go.
    """
    name = os.environ.get("DET_TRIAL_ID")
    if not name:
        return None
    size = _mapping("DET_HPARAMS").get("global_batch_size")
    return Trial(
        name,
        _number("DET_TRIAL_SEED"),
        _number("DET_STEPS_COMPLETED", "DET_LATEST_BATCH"),  # the name before 0.18.0
        None if size is None else whole("hyperparameters.global_batch_size", size, 1),
    )


def storage_section() -> Mapping[str, Any]:
    """Return the experiment's ``data.data_layer``, or ``data_layer``; empty without either.

    Only releases before 0.19.10 have ``data_layer``.
    """
    config = _mapping(CONFIG)
    data = config.get("data")
    ours = data.get(SECTION) if isinstance(data, Mapping) else None
    section = ours or config.get(SECTION) or {}
    if not isinstance(section, Mapping):
        raise invalid("it is no mapping", SECTION, "write type, and what that type needs")
    return section


def _number(*names: str) -> int:
    for name in names:
        if text := os.environ.get(name):
            if not text.isdecimal():
                raise invalid(f"{text!r} is no whole number", name)
            return int(text)
    return 0


def _mapping(name: str) -> Mapping[str, Any]:
    try:
        value = json.loads(os.environ.get(name) or "{}")
    except ValueError:
        value = None
    if not isinstance(value, Mapping):
        raise invalid("it is no JSON object", name)
    return value
