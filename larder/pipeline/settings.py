"""What a run is asked to do: dataset, cluster, template and where configs go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larder.config.load import load_cluster, load_dataset, load_template
from larder.config.location import resolve_url
from larder.config.models import Cluster, Dataset, Location

__all__ = ["Settings", "load_settings"]

DEFAULT_TEMPLATE = "default.yaml"


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that the user's files and flags say.

    Attributes:
        dataset: With an absolute source URL.
        cluster: With an absolute local URL.
        template: The experiment template, as it stands.
        template_name: Its file name in configs/experiments.
        output: Absolute directory that the configs are written to.
    """

    dataset: Dataset
    cluster: Cluster
    template: Mapping[str, Any]
    template_name: str
    output: Path


def load_settings(
    dataset: str,
    cluster: str = "local",
    *,
    config_dir: Path,
    settings: Sequence[str] = (),
    output: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """Read the files that describe a run.

    Args:
        dataset: Name of a file in ``config_dir/datasets``.
        cluster: Name of a file in ``config_dir/clusters``.
        config_dir: The directory of all configuration.
        settings: ``key.path=value`` pairs that override it.
        output: Where configs go; ``out/CLUSTER/DATASET`` below the current directory by default.
        environ: Instead of the process's environment.

    Raises:
        ConfigError: Anything that is wrong with the files or the pairs.
    """
    described = load_dataset(config_dir, dataset, settings, environ)
    target = load_cluster(config_dir, cluster, settings, environ)
    template_name = described.experiment.template or DEFAULT_TEMPLATE
    where = output or Path("out") / target.name / described.name
    return Settings(
        dataset=described.model_copy(update={"source": _absolute(described.source)}),
        cluster=target.model_copy(update={"local": _absolute(target.local)}),
        template=load_template(config_dir, template_name),
        template_name=template_name,
        output=Path.cwd() / where,
    )


def _absolute(location: Location) -> Location:
    return location.model_copy(update={"url": resolve_url(location.url, Path.cwd())})
