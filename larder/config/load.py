"""The loader of dataset files, cluster files and experiment templates.

The steps are: YAML with line numbers, ``${VARIABLE}``, --set, the model. Every mistake is a
`ConfigError` that names the file, the line and the dotted key. Local paths in the files
are relative to the current directory (`larder.config.location.resolve_url`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from larder.config.models import Cluster, Dataset
from larder.config.text import yaml
from larder.config.text.messages import Problem, Schema, instead, refusal, translate
from larder.config.text.replacements import CLUSTER, Setting, apply, expand, parse_settings
from larder.config.text.yaml import Document, KeyPath
from larder.config.urls import shown
from larder.errors import ConfigError, ProblemsError
from larder.units import suggest

M = TypeVar("M", Dataset, Cluster)

_SOURCE_URLS: tuple[KeyPath, ...] = (("source", "url"), ("source", "inventory", "url"))
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


@dataclass(frozen=True, slots=True)
class _Kind(Generic[M]):
    model: type[M]
    noun: str
    prefix: str

    @property
    def folder(self) -> str:
        """Below the configuration directory."""
        return f"{self.noun}s"

    @property
    def schema(self) -> Schema:
        return Schema(self.model, self.noun, self.prefix)


_DATASET = _Kind(Dataset, "dataset", "")
_CLUSTER = _Kind(Cluster, "cluster", f"{CLUSTER}.")


def load_dataset(
    config_dir: Path,
    name: str,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    formats: Collection[str] | None = None,
    reads_source: bool = True,
) -> Dataset:
    """Load ``config_dir/datasets/NAME.yaml``; every mistake is a ``config.*`` error that says
    where.

    Settings that begin with ``cluster.`` are ignored. ``environ`` is that of the process if None,
    ``formats`` what ``shards.format`` may be (any string if None), and ``reads_source`` says
    whether the variables in ``source.url`` are needed.
    """
    dataset, _ = parse_settings(settings)
    unread = () if reads_source else _SOURCE_URLS
    return _load(_DATASET, config_dir, name, dataset, environ, {"formats": formats}, unread)


def load_cluster(
    config_dir: Path,
    name: str,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Cluster:
    """Load ``config_dir/clusters/NAME.yaml``; uses the ``settings`` with ``cluster.``."""
    _, cluster = parse_settings(settings)
    return _load(_CLUSTER, config_dir, name, cluster, environ)


def load_template(config_dir: Path, name: str) -> dict[str, Any]:
    """Load ``config_dir/experiments/NAME``: a mapping, unchanged, variables not replaced.

    The name is a file name, or a path below ``experiments`` with ``/``.
    """
    folder = config_dir / "experiments"
    known = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.yaml")}
    if name not in known:
        raise ConfigError(
            "config.template",
            f"there is no template {shown(name) or 'of that name'}",
            where=str(folder),
            hint=suggest(name, sorted(known), "templates"),
        )
    try:
        value = yaml.read(known[name]).value
    except ConfigError as error:
        if error.code != "config.unreadable":
            raise
        raise ConfigError("config.template", error.message, where=error.where) from None
    if not isinstance(value, dict):
        raise ConfigError("config.template", "expected a mapping", where=str(known[name]))
    return value


def names(config_dir: Path, folder: str) -> list[str]:
    """The names of the files in ``config_dir/folder`` (``datasets`` or ``clusters``), sorted."""
    found = (path.stem for path in (config_dir / folder).glob("*.yaml"))
    return sorted(name for name in found if _NAME.fullmatch(name))


def _load(
    kind: _Kind[M],
    config_dir: Path,
    name: str,
    settings: Sequence[Setting],
    environ: Mapping[str, str] | None,
    context: Mapping[str, Any] | None = None,
    unread: Collection[KeyPath] = (),
) -> M:
    path = _find(kind, config_dir, name)
    document = yaml.read(path)
    if not isinstance(document.value, dict):
        found = "is empty" if document.value is None else "is not a mapping"
        raise ConfigError(
            "config.invalid_value",
            f"the file {found}",
            where=document.place(()).where,
            hint=f"describe a {kind.noun} in lines of key: value",
        )
    expanded = expand(
        document,
        os.environ if environ is None else environ,
        overridden=[setting.path for setting in settings],
        prefix=kind.prefix,
        unread=unread,
    )
    problems, document = list(expanded.problems), expanded.document
    for setting in settings:
        try:
            document = apply(document, [setting])
        except ConfigError as error:
            problems.append(error)
    model, wrong = _validated(kind, _named(document, name), name, context)
    problems += refusal(wrong, document, expanded.unfilled)
    if problems:
        raise ProblemsError(problems)
    assert model is not None, "without problems there is a model"
    return model


def _find(kind: _Kind[M], config_dir: Path, name: str) -> Path:
    folder = config_dir / kind.folder
    known = names(config_dir, kind.folder)
    if name in known:
        return folder / f"{name}.yaml"
    if not folder.is_dir():
        raise ConfigError(
            "config.unreadable",
            "no such directory",
            where=str(folder),
            hint="run the command where configs/ is, or pass --config-dir",
        )
    raise ConfigError(
        f"config.unknown_{kind.noun}",
        f"there is no {kind.noun} {shown(name) or 'of that name'}",
        where=str(folder),
        hint=suggest(Path(name).stem, known, kind.folder),
    )


def _named(document: Document, name: str) -> Document:
    if "name" in document.value:
        return document
    return replace(document, value={"name": name, **document.value})


def _validated(
    kind: _Kind[M], document: Document, name: str, context: Mapping[str, Any] | None
) -> tuple[M | None, list[Problem]]:
    """The model, or None if the document is invalid, and all problems."""
    model, problems = None, []
    try:
        model = kind.model.model_validate(
            document.value, by_alias=True, by_name=False, context=dict(context or {})
        )
    except ValidationError as error:
        problems = translate(error, kind.schema, document)
    found = document.value["name"]
    refused = any(problem.path == ("name",) for problem in problems)
    if found != name and not refused:
        not_that = instead(found, document, ("name",))
        given = kind.prefix if document.place(("name",)).line == 0 else ""
        message = f"{given}name: expected {name}, the name of the file{not_that}"
        hint = "rename one of the two, or omit name"
        problems.append(Problem(("name",), "config.invalid_value", message, hint))
    return model, problems
