"""A model of a Determined experiment: the fields that Larder emits, and the rules for them.

Determined checks an experiment in its master, so a mistake shows only on submission. The model
follows its schemas (``schemas/expconf/v0`` of releases 0.21 and 0.38) for the emitted fields; other
known fields are not checked. The rules are those that the schemas do not express, each with its
source. Paths of mounts are normalised and compared as strings; a relative ``host_path`` and a
``container_path`` of ``.`` are all that the schemas refuse, and the other rules prevent failures in
agents and in the merging of configs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from pydantic import ValidationError as Invalid

from larder.config.models import Mount
from larder.config.urls import parse_url
from larder.errors import ConfigError
from larder.units import nearest

WORK_DIR = "/run/determined/workdir"
"""Where Determined puts the model code; a relative ``container_path`` is joined to it."""

_UNREADABLE = re.compile(r"[{}\\]|::")  # special in brace patterns


@dataclass(frozen=True, slots=True)
class Binding:
    """One bind mount, normalised, and the path of the storage in the container."""

    host_path: str
    container_path: str
    read_only: bool
    data_path: str


def bind(storage_url: str, mounts: Sequence[Mount], *, where: str = "") -> Binding:
    """Choose the bind mount through which containers see the storage, a ``file:`` URL or absolute
    path.

    Without mounts, the storage directory itself is mounted, at the same path in the container.

    Raises:
        ConfigError: ``config.path``: the directory is not absolute, a mount breaks a rule, or the
            directory is inside none or several of them.
    """
    directory = _directory(storage_url)
    usable = mounts or (Mount(host_path=directory, container_path=directory),)
    problems = list(mount_problems([mount.model_dump() for mount in usable]))
    problems += [
        (f"{number}.container_path", "must be absolute, so that the config can name the data")
        for number, mount in enumerate(usable)
        if mount.container_path.strip("./") and not mount.container_path.startswith("/")
    ]
    if problems:
        text = "; ".join(f"{path} {message}" for path, message in problems)
        raise _refused(f"unusable bind mount: {text}", where, "fix nodes.mounts")
    return _chosen(directory, usable, where)


def _chosen(directory: str, mounts: Sequence[Mount], where: str) -> Binding:
    holding = [mount for mount in mounts if under(directory, normal(mount.host_path)) is not None]
    if len(holding) != 1:
        which = ", ".join(mount.host_path for mount in holding) or "none of them"
        message = f"{directory} must be inside the host_path of exactly one mount, not {which}"
        raise _refused(message, where, "fix nodes.mounts or storage.url")
    host, container = normal(holding[0].host_path), normal(holding[0].container_path)
    data = posixpath.join(container, under(directory, host) or "").rstrip("/")
    if _UNREADABLE.search(data):
        message = f"{data} contains a brace, a backslash or ::, which are special in brace patterns"
        raise _refused(message, where, "choose another directory")
    return Binding(host, container, holding[0].read_only, data)


def _directory(storage_url: str) -> str:
    path = parse_url(storage_url).rest
    if not path.startswith("/") or ".." in path.split("/"):
        message = "a bind mount needs the absolute path of the storage directory, without .."
        raise _refused(message, storage_url, "write storage.url in full")
    return normal(path)


def _refused(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.path", message, where=where, hint=hint)


def normal(path: str) -> str:
    """The path without ``//``, ``/./`` and trailing slashes."""
    return re.sub(r"^//", "/", posixpath.normpath(path))


def under(path: str, directory: str) -> str | None:
    """``path`` relative to ``directory``, empty for itself; None if it is not inside."""
    path, directory = path.rstrip("/"), directory.rstrip("/")
    if path == directory:
        return ""
    return path[len(directory) + 1 :] if path.startswith(f"{directory}/") else None


def container_target(container_path: str) -> str:
    """Where Determined mounts a ``container_path``: absolute and normalised."""
    return normal(posixpath.join(WORK_DIR, container_path))


def mount_problems(mounts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """What is wrong with bind mounts whose fields have the right types.

    Yields:
        The field, such as ``0.host_path``, and the rule it breaks.
    """
    seen: dict[str, int] = {}
    for number, mount in enumerate(mounts):
        yield from _path_problems(number, mount["host_path"], mount["container_path"])
        first = seen.setdefault(container_target(mount["container_path"]), number)
        if first != number:
            message = f"is also the container_path of mount {first}; Determined silently drops one"
            yield f"{number}.container_path", message


def _path_problems(number: int, host: str, container: str) -> Iterator[tuple[str, str]]:
    if not host.startswith("/"):
        yield f"{number}.host_path", f"must be an absolute path, not {host!r}"
    if ".." in host.split("/"):
        yield f"{number}.host_path", "must not contain .."
    if ".." in container.split("/"):
        yield f"{number}.container_path", "must not contain .."
    elif under(WORK_DIR, container_target(container)) is not None:
        message = f"must not be {container!r}: it would hide the model code in {WORK_DIR}"
        yield f"{number}.container_path", message


_SINCE_0_22 = frozenset({"integrations", "log_policies", "preemption_timeout", "retention_policy"})
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
        "internal",
        "labels",
        "max_restarts",
        "min_checkpoint_period",
        "min_validation_period",
        "name",
        "optimizations",
        "pbs",
        "perform_initial_validation",
        "profiling",
        "project",
        "records_per_epoch",
        "reproducibility",
        "resources",
        "scheduling_unit",
        "searcher",
        "security",
        "slurm",
        "tensorboard_storage",
        "workspace",
    }
)
_DEVICES = frozenset({"cpu", "cuda", "rocm", "gpu"})
_TRIAL_CLASS = re.compile(r"[\w.]+:\w+")
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
    return value


class _Fields(BaseModel):
    """Base of the models; fields that Larder does not emit are not checked."""

    model_config = ConfigDict(frozen=True, extra="allow")


class BindMount(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

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

    name: Annotated[StrictStr, Field(min_length=1)]
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
    """The top-level keys of an experiment of that Determined release."""
    number = _number(release)
    keys = _KEYS | _SINCE_0_22 if number >= (0, 22) else _KEYS
    return keys - {"data_layer"} if number >= (0, 19, 10) else keys


def validate(config: Mapping[str, Any], release: str, *, where: str = "") -> None:
    """Check a rendered experiment, and report all mistakes at once, with field and rule."""
    number = _number(release)
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


def _number(release: str) -> Release:
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
    # Release note 0.38.0: "no longer accepts model_def:TrialClass".
    entrypoint = config["entrypoint"]
    if release >= (0, 38) and isinstance(entrypoint, str) and _TRIAL_CLASS.fullmatch(entrypoint):
        yield "entrypoint", "Determined 0.38 requires a command, not MODULE:CLASS"


def _searcher_problems(searcher: Mapping[str, Any], release: Release) -> Iterator[Problem]:
    name = searcher["name"]
    if name in _ASHA | {"random"} and searcher.get("max_trials") is None:
        yield "searcher.max_trials", f"required by {name}"
    if release < (0, 38):
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
