"""The settings of a command that names a source and a storage itself, instead of two files.

The document is made of the arguments: a mapping with the keys ``source``, ``storage``, ``copy`` and
``runner``, in which --set replaces fields as it does in a file. A cluster gives ``copy`` and
``runner``, and the way to reach its storage if the command's is that or inside of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from larder.config.access import is_inside, resolve_url
from larder.config.models import Cluster, CopyConfig, Location, Model, RunnerConfig, Source
from larder.config.models.field_types import RefusedError
from larder.config.text.messages import Schema, refusals
from larder.config.text.replacements import Setting, apply, parse_settings
from larder.config.text.yaml import Document, KeyPath, Position
from larder.config.urls import environment_endpoint
from larder.errors import ConfigError, ProblemsError

M = TypeVar("M", bound=Model)
L = TypeVar("L", bound=Location)


class Places(Model):
    """Where a command copies from and to, and the limits of that."""

    source: Source = Field(description="where the data lives")
    storage: Location = Field(description="where it is copied to")
    copy_: CopyConfig = Field(CopyConfig(), alias="copy", description="how objects are copied")
    runner: RunnerConfig = Field(RunnerConfig(), description="what runs the batches")

    @model_validator(mode="after")
    def _whole_objects(self) -> Self:
        if self.source.expands:
            hint = "leave source.archives and source.rows out"
            raise RefusedError("objects are copied as they are", hint=hint)
        return self


@dataclass(frozen=True, slots=True)
class Argument:
    """The value of an argument or a flag for a field.

    Attributes:
        path: The path of the field, such as ``("source", "include")``.
        value: None if it was not arguments.
        name: As errors name it: ``SOURCE`` or ``--include``.
    """

    path: tuple[str, ...]
    value: Any
    name: str


_SCHEMA = Schema(Places, "command")


def read_places(
    arguments: Sequence[Argument], settings: Sequence[str] = (), cluster: Cluster | None = None
) -> Places:
    """Read the arguments of a command; several mistakes are a `ProblemsError` with all of them.

    ``source.url`` and ``storage.url`` are required. ``settings`` are all ``--set`` arguments, and
    the cluster gives the fields that nothing else does.
    """
    of_command, of_cluster = parse_settings(settings)
    problems = [_not_of_cluster(setting) for setting in of_cluster]
    document = _document([each for each in arguments if each.value is not None], cluster)
    document = apply(document, of_command, problems)
    try:
        places = Places.model_validate(document.value, by_alias=True, by_name=False)
    except ValidationError as error:
        problems += refusals(error, _SCHEMA, document)
    if problems:
        raise problems[0] if len(problems) == 1 else ProblemsError(problems)
    return places


def _document(arguments: Sequence[Argument], cluster: Cluster | None) -> Document:
    value: dict[str, Any] = {}
    places: dict[KeyPath, Position] = {(): Position("the command", 0)}
    for each in arguments:
        within = value
        for part in each.path[:-1]:
            within = within.setdefault(part, {})
        within[each.path[-1]] = each.value
        places[each.path] = Position(each.name, 0)
    if cluster:
        url = value.get("storage", {}).get("url")
        value = _merged(_limits_and_access(cluster, url), value)
    return Document(value, places, {})


def _limits_and_access(cluster: Cluster, url: Any) -> dict[str, Any]:
    """What a cluster file says about a command whose storage has this URL."""
    values = {
        "copy": cluster.copy_.model_dump(by_alias=True, exclude_defaults=True),
        "runner": cluster.runner.model_dump(by_alias=True, exclude_defaults=True),
    }
    if isinstance(url, str) and is_inside(url, cluster.storage.url):
        access = cluster.storage.model_dump(by_alias=True, exclude_defaults=True)
        values["storage"] = {key: each for key, each in access.items() if key != "url"}
    return values


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = {
        key: _merged(base[key], over[key])
        for key in base.keys() & over.keys()
        if isinstance(base[key], dict) and isinstance(over[key], dict)
    }
    return {**base, **over, **both}


def _not_of_cluster(setting: Setting) -> ConfigError:
    hint = f"write --set {'.'.join(setting.path)}=VALUE"
    message = "the keys of this command begin with source., storage., copy. or runner."
    return ConfigError("config.unknown_key", message, where=setting.where, hint=hint)


def located(location: L, environ: Mapping[str, str], key: str) -> L:
    """A path made absolute; a bucket with the endpoint that the environment chooses.

    So two ways to name a server are recognised as the same, and a server other than the provider's
    own is not priced like it.
    """
    url = _absolute(location.url, key)
    report = getattr(location, "inventory", None)
    if report is not None:
        absolute = _absolute(report.url, key.replace("url", "inventory.url"))
        location = with_fields(location, inventory=with_fields(report, url=absolute))
    access = location.access
    endpoint = ""
    if not (access.endpoint or access.profile):
        endpoint = environment_endpoint(location.provider, environ)
    changes = {"endpoint": endpoint} if endpoint else {}
    return with_fields(location, url=url, **changes)


def _absolute(url: str, key: str) -> str:
    try:
        return resolve_url(url, Path.cwd())
    except ConfigError as error:
        raise ConfigError(error.code, error.message, where=key, hint=error.hint) from None


def with_fields(model: M, **changes: Any) -> M:
    """A model with other values, which are validated like those of a file."""
    fields = {name: getattr(model, name) for name in type(model).model_fields}
    return type(model).model_validate(fields | changes)
