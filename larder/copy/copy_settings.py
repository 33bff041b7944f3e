"""Settings of a copy, from its arguments, its flags and a cluster file.

The arguments become a document with the keys ``source``, ``storage``, ``copy`` and ``runner``, in
which --set replaces fields as in a file. A cluster gives ``copy`` and ``runner``. It also gives
access to its storage, if the command's storage is the same or inside it.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pydantic import Field, ValidationError, model_validator

from larder.config.config_document import Document, KeyPath, Position
from larder.config.models.copy_config import CopyConfig, RunnerConfig
from larder.config.models.field_types import Model, RuleError
from larder.config.models.locations import Location, Source, located
from larder.config.set_arguments import Setting, apply, parse_settings
from larder.config.urls import check_overlap, directory, is_inside
from larder.errors import ConfigError, ProblemsError
from larder.jobs.step_runner import runner_batches
from larder.store import OnUnlisted, open_location
from larder.store.base import Store

if TYPE_CHECKING:
    from larder.config.models.cluster import Cluster


class CopyPlaces(Model):
    """Source and storage of a command, and the limits of the copy."""

    source: Source = Field(description="where the data lives")
    storage: Location = Field(description="where it is copied to")
    copy_: CopyConfig = Field(CopyConfig.model_construct(), alias="copy", description="how to copy")
    runner: RunnerConfig = Field(RunnerConfig.model_construct(), description="what runs batches")

    @model_validator(mode="after")
    def _whole_objects(self) -> Self:
        if self.source.expands:
            hint = "leave source.archives and source.rows out"
            raise RuleError("objects are copied as they are", hint=hint)
        return self


class Argument(NamedTuple):
    """The value of an argument or a flag for a field, None if not given; errors show ``name``."""

    path: tuple[str, ...]
    value: Any
    name: str


def read_places(
    arguments: Sequence[Argument], settings: Sequence[str] = (), cluster: Cluster | None = None
) -> CopyPlaces:
    """Read the arguments of a command; several mistakes are a `ProblemsError` with all of them.

    ``settings`` are all ``--set`` arguments; the cluster gives fields that have no other value.
    """
    of_command, of_cluster = parse_settings(settings)
    problems = [_not_of_cluster(setting) for setting in of_cluster]
    document = _document([each for each in arguments if each.value is not None], cluster)
    document = apply(document, of_command, problems)
    try:
        places = CopyPlaces.model_validate(document.value, by_alias=True, by_name=False)
    except ValidationError as error:
        from larder.config.messages import FileModel, refusals

        problems += refusals(error, FileModel(CopyPlaces, "command"), document)
    if problems:
        raise problems[0] if len(problems) == 1 else ProblemsError(problems)
    return places


def _document(arguments: Sequence[Argument], cluster: Cluster | None) -> Document:
    urls = (each.value for each in arguments if each.path == ("storage", "url"))
    value = _limits_and_access(cluster, next(urls, None)) if cluster else {}
    places: dict[KeyPath, Position] = {(): Position("the command", 0)}
    for each in arguments:
        within = value
        for part in each.path[:-1]:
            within = within.setdefault(part, {})
        within[each.path[-1]] = each.value
        places[each.path] = Position(each.name, 0)
    return Document(value, places, {})


def _limits_and_access(cluster: Cluster, url: Any) -> dict[str, Any]:
    """Return a cluster's settings for a command whose storage has this URL."""
    values = {
        "copy": cluster.copy_.model_dump(by_alias=True, exclude_defaults=True),
        "runner": cluster.runner.model_dump(by_alias=True, exclude_defaults=True),
    }
    if isinstance(url, str) and is_inside(url, cluster.storage.url):
        access = cluster.storage.model_dump(by_alias=True, exclude_defaults=True)
        values["storage"] = {key: each for key, each in access.items() if key != "url"}
    return values


def _not_of_cluster(setting: Setting) -> ConfigError:
    hint = f"write --set {'.'.join(setting.path)}=VALUE"
    message = "the keys of this command begin with source., storage., copy. or runner."
    return ConfigError("config.unknown_key", message, where=setting.where, hint=hint)


class CopySettings(NamedTuple):
    """All settings of a copy; both places have absolute URLs."""

    source: Source
    storage: Location
    limits: CopyConfig
    runner: RunnerConfig

    @property
    def batches_at_once(self) -> int:
        """Number of concurrent batches."""
        return runner_batches(self.runner, self.limits)

    def open_source(self, url: str | None = None, *, unlisted: OnUnlisted | None = None) -> Store:
        """Open the source, or a URL with the source's credentials."""
        return open_location(self.source, url, limits=self.limits, unlisted=unlisted)

    def open_root(self) -> Store:
        return open_location(self.storage, limits=self.limits)


def load_copy_settings(
    source: str,
    storage: str,
    *,
    cluster: str | None = None,
    config_dir: str | Path = "configs",
    settings: Sequence[str] = (),
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    verify: str | None = None,
) -> CopySettings:
    """Read the arguments of a command that copies; all mistakes are raised at once.

    ``cluster`` gives the limits and access to its storage, and ``settings`` override fields of
    ``source``, ``storage``, ``copy`` and ``runner`` as ``key.path=value``. Refused if one place is
    inside the other (``config.overlap``).
    """
    folder = directory(config_dir, "--config-dir")
    described = None
    if cluster:
        from larder.config.load import load_cluster

        described = load_cluster(folder, cluster, (), os.environ)
    places = read_places(
        (
            Argument(("source", "url"), source, "SOURCE"),
            Argument(("storage", "url"), storage, "STORAGE"),
            Argument(("source", "include"), list(include) or None, "--include"),
            Argument(("source", "exclude"), list(exclude) or None, "--exclude"),
            Argument(("copy", "verify"), verify, "--verify"),
        ),
        settings,
        described,
    )
    resolved = CopySettings(
        source=located(places.source, os.environ, "SOURCE"),
        storage=located(places.storage, os.environ, "STORAGE"),
        limits=places.copy_,
        runner=places.runner,
    )
    check_overlap(
        resolved.source.url,
        resolved.storage.url,
        source_endpoint=resolved.source.access.endpoint,
        storage_endpoint=resolved.storage.access.endpoint,
    )
    return resolved
