"""The loader of dataset files, cluster files and experiment templates.

The steps are: YAML with line numbers, ``${VARIABLE}``, --set, the model. Every mistake is a
`ConfigError` that names the file, the line and the dotted key. Local paths in the files
are relative to the current directory (`larder.config.urls.resolve_url`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from larder.config.config_document import Document, KeyPath, expand
from larder.config.messages import FileModel, refusals
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.models.field_types import with_fields
from larder.config.patterns import glob_regex, with_sample_key
from larder.config.set_arguments import CLUSTER, Setting, apply, parse_settings
from larder.config.text import file_text, read, read_template, template_text
from larder.config.urls import shown
from larder.errors import ConfigError, ProblemsError
from larder.units import suggest

_DATASET = FileModel(Dataset, "dataset")
_CLUSTER = FileModel(Cluster, "cluster", f"{CLUSTER}.")
_SOURCE_URLS: tuple[KeyPath, ...] = (("source", "url"), ("source", "inventory", "url"))
_SPECIAL = re.compile(r"[*?\[{]")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_RULE = "rename the file: a name is 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit"


def load_dataset(
    config_dir: Path,
    name: str,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    *,
    formats: Collection[str] | None = None,
    reads_source: bool = True,
) -> Dataset:
    """Load ``config_dir/datasets/NAME.yaml``; every mistake is a ``config.*`` error with its place.

    Settings that begin with ``cluster.`` are ignored. ``environ`` is by default the environment of
    the process. ``formats`` are the allowed values of ``shards.format``, any string if None.
    Without ``reads_source``, the variables in ``source.url`` are not needed.
    """
    unread = () if reads_source else _SOURCE_URLS
    context = {"formats": formats}
    of_file = parse_settings(settings).dataset
    dataset: Dataset = _load(_DATASET, config_dir, name, of_file, environ, unread, context)
    if dataset.omit is None:
        return dataset
    path, named_by = config_dir / "datasets" / dataset.omit, f"omit of dataset {name}"
    join = dataset.samples.join or ()
    patterns = list(join.values() if isinstance(join, dict) else join)
    omitted = tuple(_omitted(path, named_by, patterns))
    source, rows = dataset.source, dataset.source.rows
    rows = rows and with_fields(rows, exclude=(*rows.exclude, *omitted))
    source = with_fields(source, exclude=(*source.exclude, *omitted), rows=rows)
    return with_fields(dataset, source=source)


def _omitted(path: Path, named_by: str, patterns: Sequence[str]) -> Iterator[str]:
    """Yield the globs of a deny-list: each line as a glob, and as the key of an object or a sample.

    ``patterns`` find the parts of a sample.
    """
    try:
        text = file_text(path)
    except ConfigError as error:
        hint = f"it is {named_by}: {error.hint or 'shorten it'}, or change the name"
        raise ConfigError(error.code, error.message, where=error.where, hint=hint) from None
    for number, line in enumerate(map(str.strip, text.splitlines()), 1):
        if not line or line.startswith("#"):
            continue
        where = f"{path}:{number}"
        if line.startswith(("/", "./")) or line.endswith("/"):
            message, hint = "no key begins or ends like that", "write people/0042, or people/**"
            raise ConfigError("config.invalid_value", message, where=where, hint=hint)
        try:
            glob_regex(line)
        except ConfigError as error:
            raise ConfigError(error.code, error.message, where=where, hint=error.hint) from None
        key = _SPECIAL.sub(r"[\g<0>]", line)
        joined = (with_sample_key(pattern, key) for pattern in patterns)
        yield from dict.fromkeys((line, key, f"{key}.*", *joined))


def load_cluster(
    config_dir: Path,
    name: str,
    settings: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Cluster:
    """Load ``config_dir/clusters/NAME.yaml``; uses the ``settings`` with ``cluster.``."""
    of_file = parse_settings(settings).cluster
    cluster: Cluster = _load(_CLUSTER, config_dir, name, of_file, environ)
    return cluster


def load_template(config_dir: Path, name: str) -> dict[str, Any]:
    """Load ``config_dir/experiments/NAME``: a mapping with its comments, variables not replaced.

    The name is a file name, or a path below ``experiments`` with ``/``. For a script, the mapping
    has its text as ``script``. ``config.secret``: a config made from it would contain a secret.
    """
    folder = config_dir / "experiments"
    templates = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*")}
    templates = {key: path for key, path in templates.items() if path.suffix in (".yaml", ".sh")}
    if name not in templates:
        raise ConfigError(
            "config.template",
            f"there is no template {shown(name) or 'of that name'}",
            where=str(folder),
            hint=suggest(name, sorted(templates), "templates"),
        )
    if name.endswith(".sh"):
        return {"script": template_text(templates[name])}
    value = read_template(templates[name])
    if not isinstance(value, dict):
        raise ConfigError("config.template", "expected a mapping", where=str(templates[name]))
    return value


def names(config_dir: Path, folder: str) -> list[str]:
    """List the names of files in ``config_dir/folder`` (``datasets`` or ``clusters``), sorted."""
    stems = (path.stem for path in (config_dir / folder).glob("*.yaml"))
    return sorted(stem for stem in stems if _NAME.fullmatch(stem))


def _read(schema: FileModel, config_dir: Path, name: str) -> Document:
    """Read the file of a name, and add ``name`` if the file leaves it out."""
    document = read(_path(schema, config_dir, name))
    if not isinstance(document.value, dict):
        reason = "is empty" if document.value is None else "is not a mapping"
        raise ConfigError(
            "config.invalid_value",
            f"the file {reason}",
            where=document.place(()).where,
            hint=f"describe a {schema.noun} in lines of key: value",
        )
    return document._replace(value={"name": name, **document.value})


def _path(schema: FileModel, config_dir: Path, name: str) -> Path:
    folder = config_dir / f"{schema.noun}s"
    existing = names(config_dir, folder.name)
    if name in existing:
        return folder / f"{name}.yaml"
    if not folder.is_dir():
        raise ConfigError(
            "config.unreadable",
            "no such directory",
            where=str(folder),
            hint="run the command where configs/ is, or pass --config-dir",
        )
    name = str(name)  # a program may pass None
    is_file = name in (path.stem for path in folder.glob("*.yaml"))
    raise ConfigError(
        f"config.unknown_{schema.noun}",
        f"there is no {schema.noun} {shown(name) or 'of that name'}",
        where=str(folder),
        hint=_RULE if is_file else suggest(Path(name).stem, existing, folder.name),
    )


def _load(
    schema: FileModel,
    config_dir: Path,
    name: str,
    settings: Sequence[Setting],
    environ: Mapping[str, str] | None,
    unread: Collection[KeyPath] = (),
    context: Mapping[str, Any] | None = None,
) -> Any:
    """Load a file into its model; raises a `ProblemsError` with all mistakes."""
    expanded = expand(
        _read(schema, config_dir, name),
        os.environ if environ is None else environ,
        overridden=[setting.path for setting in settings],
        prefix=schema.prefix,
        unread=unread,
    )
    problems, document = expanded.problems, expanded.document
    document = apply(document, settings, problems)
    if document.value["name"] != name:
        where, hint = document.place(("name",)).where, "rename one of the two, or omit name"
        message = f"name: expected {name}, the name of the file"
        problems.append(ConfigError("config.invalid_value", message, where=where, hint=hint))
    try:
        model = schema.model.model_validate(
            document.value, by_alias=True, by_name=False, context=dict(context or {})
        )
    except ValidationError as error:
        problems += refusals(error, schema, document, expanded.unfilled)
    if problems:
        raise ProblemsError(problems)
    return model
