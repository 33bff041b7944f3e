"""A model of a Determined experiment: the fields that Larder emits, and the rules for them.

Determined checks an experiment in its master, so a mistake shows only on submission. The model
follows its schemas (``schemas/expconf/v0``, releases 0.14.2 to 0.38) for the emitted fields; of
other known fields, only their presence in the release is checked. The rules are those that the
schemas do not express, each with its source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from pydantic import ValidationError as Invalid

from larder.errors import ConfigError
from larder.experiments.consumers.determined.mounts import mount_problems
from larder.units import nearest

_KEYS = frozenset(
    {
        "bind_mounts",
        "checkpoint_policy",
        "checkpoint_storage",
        "data",
        "data_layer",
        "debug",
        "description",
        "entrypoint",
        "environment",
        "hyperparameters",
        "integrations",
        "internal",
        "labels",
        "log_policies",
        "max_restarts",
        "min_checkpoint_period",
        "min_validation_period",
        "name",
        "optimizations",
        "pbs",
        "perform_initial_validation",
        "preemption_timeout",
        "profiling",
        "project",
        "records_per_epoch",
        "reproducibility",
        "resources",
        "retention_policy",
        "scheduling_unit",
        "searcher",
        "security",
        "slurm",
        "tensorboard_storage",
        "workspace",
    }
)
_SINCE = {
    "profiling": (0, 15, 2),
    "name": (0, 16),
    "project": (0, 18, 3),
    "workspace": (0, 18, 3),
    "pbs": (0, 19, 6),
    "slurm": (0, 19, 6),
    "log_policies": (0, 26, 3),
    "retention_policy": (0, 31),
    "integrations": (0, 33),
    "preemption_timeout": (0, 37),
}
"""The releases from which on the schema has a key."""
_SCHEMAS = (0, 14, 2)
_DEVICES = frozenset({"cpu", "cuda", "rocm", "gpu"})
_TRIAL_CLASS = re.compile(r"[\w.]+:\w+")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ASHA = frozenset({"adaptive_asha", "async_halving"})

Problem = tuple[str, str]
Release = tuple[int, ...]


def _entrypoint(value: Any) -> Any:
    words = [value] if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise ValueError("must be a string or a list of strings")
    if not "".join(words).strip():
        raise ValueError("must name a command")
    return value


def _variables(value: Any) -> Any:
    lists = value if isinstance(value, Mapping) else {"": value}
    if isinstance(value, Mapping) and value.keys() - _DEVICES:
        raise ValueError("must be a list of NAME=VALUE, or such lists under cpu, cuda and rocm")
    for entries in lists.values():
        if not isinstance(entries, list):
            raise ValueError("must be a list of NAME=VALUE")
        for entry in entries:
            # Values may be secrets in the template: the message names only the variable.
            if not isinstance(entry, str) or not entry.partition("=")[0] or "=" not in entry:
                raise ValueError("must contain only strings NAME=VALUE")
            if _CONTROL.search(entry):
                name = entry.partition("=")[0]
                raise ValueError(f"{name!r} must be one line without control characters")
    return value


class _Fields(BaseModel):
    """Base of the models; fields that Larder does not emit are not checked."""

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)


class BindMount(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)

    host_path: StrictStr
    container_path: StrictStr
    read_only: StrictBool | None = None
    propagation: Literal["private", "rprivate", "shared", "rshared", "slave", "rslave"] | None = (
        None  # Docker's; the schema allows any string
    )


class Environment(_Fields):
    environment_variables: Annotated[Any, BeforeValidator(_variables)] = []


class Searcher(_Fields):
    name: Literal["single", "random", "grid", "adaptive_asha", "async_halving", "custom"]
    metric: Annotated[StrictStr, Field(min_length=1)]
    smaller_is_better: StrictBool | None = None
    max_trials: Annotated[StrictInt, Field(ge=1)] | None = None


class DeterminedExperiment(_Fields):
    """An experiment that can be submitted once the cluster's own defaults are added."""

    name: Annotated[StrictStr, Field(min_length=1)] | None = None
    description: StrictStr | None = None
    labels: list[StrictStr] | None = None
    workspace: StrictStr | None = None
    project: StrictStr | None = None
    entrypoint: Annotated[Any, BeforeValidator(_entrypoint)]
    data: dict[StrictStr, Any] | None = None
    bind_mounts: list[BindMount] | None = None
    hyperparameters: dict[StrictStr, Any]
    searcher: Searcher
    environment: Environment | None = None


def determined_keys(release: str) -> frozenset[str]:
    number = release_number(release)
    keys = frozenset(key for key in _KEYS if number >= _SINCE.get(key, _SCHEMAS))
    return keys - {"data_layer"} if number >= (0, 19, 10) else keys


def title_key(release: Release) -> str:
    return "name" if release >= _SINCE["name"] else "description"


def validate(config: Mapping[str, Any], release: str, *, where: str = "") -> None:
    """Check a rendered experiment, and report all mistakes at once, with field and rule."""
    number = release_number(release)
    if number < _SCHEMAS:
        message = f"Determined {release} has no schema of experiments that Larder could check"
        hint = "set consumer.release to 0.14.2 or later"
        raise ConfigError("config.invalid_experiment", message, where=where, hint=hint)
    problems = [*_unknown_keys(config, release), *_type_problems(config)]
    if not problems:  # the rules below rely on the types
        problems = [*_rule_problems(config, number)]
    if problems:
        text = "; ".join(f"{path}: {message}" for path, message in problems)
        raise ConfigError(
            "config.invalid_experiment",
            f"not an experiment of Determined {release}: {text}",
            where=where,
            hint="fix the template or the cluster file",
        )


def release_number(release: str) -> Release:
    return tuple(int(part) for part in release.split("."))


def _unknown_keys(config: Mapping[str, Any], release: str) -> Iterator[Problem]:
    keys = determined_keys(release)
    for key in sorted(config.keys() - keys, key=str):
        if key == "data_layer":  # from 0.19.10 on, the master accepts and ignores it
            yield key, "removed in Determined 0.19.10, and ignored since"
            continue
        near = nearest(str(key), sorted(keys))
        yield str(key), "unknown key" + (f", did you mean {near}?" if near else "")


def _type_problems(config: Mapping[str, Any]) -> list[Problem]:
    try:
        DeterminedExperiment.model_validate(dict(config))
    except Invalid as invalid:
        return [
            (".".join(map(str, error["loc"])), _sentence(error["msg"]))
            for error in invalid.errors()
        ]
    return []


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]


def _rule_problems(config: Mapping[str, Any], release: Release) -> Iterator[Problem]:
    for place, message in mount_problems(config.get("bind_mounts") or ()):
        yield f"bind_mounts.{place}", message
    if bool(config.get("workspace")) != bool(config.get("project")):
        yield "workspace", "give both workspace and project, or neither"
    yield from _searcher_problems(config["searcher"], release)
    if not config.get(title_key(release)):
        yield title_key(release), "required"
    variables = (config.get("environment") or {}).get("environment_variables")
    if (
        release < (0, 17, 6)
        and isinstance(variables, Mapping)
        and variables.keys() & {"cuda", "rocm"}
    ):
        yield "environment.environment_variables", "must be a list before Determined 0.17.6"
    if release < (0, 17, 12) and config["hyperparameters"].get("global_batch_size") is None:
        yield "hyperparameters.global_batch_size", "required before Determined 0.17.12"
    is_class = isinstance(config["entrypoint"], str) and _TRIAL_CLASS.fullmatch(
        config["entrypoint"]
    )
    if release < (0, 17, 7) and not is_class:
        yield "entrypoint", "must be MODULE:CLASS of a trial before Determined 0.17.7"
    # Release note 0.38.0: "no longer accepts model_def:TrialClass".
    if release >= (0, 38) and is_class:
        yield "entrypoint", "Determined 0.38 requires a command, not MODULE:CLASS"


def _searcher_problems(searcher: Mapping[str, Any], release: Release) -> Iterator[Problem]:
    name = searcher["name"]
    if name == "custom" and release < (0, 19, 6):
        yield "searcher.name", "custom searchers came with Determined 0.19.6"
    if name in _ASHA | {"random"} and searcher.get("max_trials") is None:
        yield "searcher.max_trials", f"required by {name}"
    if release < (0, 38):
        if name != "custom" and searcher.get("max_length") is None:
            yield "searcher.max_length", f"required by {name} before Determined 0.38"
        return
    # Release note 0.38.0: ASHA without max_time and time_metric "will no longer run"; custom
    # searchers are removed.
    if name == "custom":
        yield "searcher.name", "custom searchers were removed in Determined 0.38"
    if name in _ASHA:
        for field in ("max_time", "time_metric"):
            if searcher.get(field) is None:
                yield f"searcher.{field}", f"required by {name} since Determined 0.38"
        if searcher.get("max_length") is not None:
            yield "searcher.max_length", f"replaced by max_time for {name} in Determined 0.38"
