"""The settings of a run: dataset, cluster, template and output directory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from larder.config.load import load_cluster, load_dataset, load_template
from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.models.field_types import with_fields
from larder.config.models.locations import located
from larder.config.urls import directory
from larder.errors import ConfigError, ProblemsError
from larder.experiments.consumers.registry import consumer_of
from larder.jobs.step_runner import runner_batches
from larder.shards.formats import FORMATS


class Settings(NamedTuple):
    """The contents of the user's files and flags; URLs and ``output`` are absolute.

    ``template_name`` is the path below configs/experiments. ``replaces``: replace data settings of
    the template. ``writes``: the plan may be executed, so it has to fit the storage.
    """

    dataset: Dataset
    cluster: Cluster
    template: dict[str, Any]
    template_name: str
    output: Path
    compact: bool = False
    replaces: bool = False
    writes: bool = True

    @property
    def batches_at_once(self) -> int:
        return runner_batches(self.cluster.runner, self.cluster.copy_)


def load_settings(
    dataset: str,
    cluster: str = "local",
    *,
    config_dir: str | Path,
    settings: Sequence[str] = (),
    output: str | Path | None = None,
    compact: bool = False,
    environ: Mapping[str, str] | None = None,
    reads_source: bool = True,
    replaces: bool = False,
) -> Settings:
    """Read the files that describe a run; all mistakes are raised at once.

    ``settings`` are ``key.path=value`` pairs that override fields of the files. ``reads_source``:
    the variables in the URL of the source are needed.
    """
    config_dir = directory(config_dir, "--config-dir")
    output = directory(output, "--output") if output else None
    variables = os.environ if environ is None else environ
    described, target = _load_both(config_dir, dataset, cluster, settings, variables, reads_source)
    default = consumer_of(target).TEMPLATE
    template_name = _template_name(config_dir, default, described.experiment.template)
    where = output or Path("out") / target.name / described.name
    source = located(described.source, variables, "source.url")
    storage = located(target.storage, variables, "cluster.storage.url")
    return Settings(
        dataset=with_fields(described, source=source),
        cluster=with_fields(target, storage=storage),
        template=load_template(config_dir, template_name) if template_name else {},
        template_name=template_name,
        output=Path(os.path.abspath(where)),  # the folder to which the configs' store writes
        compact=compact,
        replaces=replaces,
    )


def _template_name(config_dir: Path, default: str | None, name: str | None) -> str:
    """Return the path of a consumer's template; its default, if only Determined has that name."""
    if not default or not name:
        return default or ""
    experiments, folder = config_dir / "experiments", default.rpartition("/")[0]
    path = f"{folder}/{name}".lstrip("/")
    if not (experiments / path).exists() and (experiments / name).is_file():
        return default
    return path


def _load_both(
    config_dir: Path,
    dataset: str,
    cluster: str,
    settings: Sequence[str],
    environ: Mapping[str, str],
    reads_source: bool,
) -> tuple[Dataset, Cluster]:
    try:
        described = load_dataset(
            config_dir, dataset, settings, environ, formats=FORMATS, reads_source=reads_source
        )
    except ConfigError as error:
        try:
            load_cluster(config_dir, cluster, settings, environ)
        except ConfigError as other:
            raise _both(error, other) from None
        raise
    return described, load_cluster(config_dir, cluster, settings, environ)


def _both(error: ConfigError, other: ConfigError) -> ConfigError:
    """Combine the mistakes of both files; mistakes in shared input, such as --set, appear once."""
    every = (*ProblemsError.of(error), *ProblemsError.of(other))
    problems = {(each.code, each.where, each.message): each for each in every}
    if error.code == other.code == "config.unreadable":
        return error  # the directory does not exist
    codes = {each.code for each in problems.values()}
    message = ""
    if codes == {"config.missing_variable"} and error.where != other.where:
        message = f"{error.message}; {other.where}: {other.message}"
    return ProblemsError(list(problems.values()), message)
