"""Facts from Determined about the trial that this process trains."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from larder.readers.determined import CONFIG
from larder.readers.schedule import invalid, whole

SECTION: Final = "data_layer"


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of Determined.

    Attributes:
        batches: Number of batches trained with so far.
        batch_size: Batch size of all ranks together; None if the experiment has none.
    """

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
    """Return the number in the first variable that is set, or 0."""
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
