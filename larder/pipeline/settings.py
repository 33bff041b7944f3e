"""What a run is asked to do: dataset, cluster, template and where configs go."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larder.config.load import load_cluster, load_dataset, load_template
from larder.config.location import resolve_url
from larder.config.models import Cluster, Dataset, Location
from larder.errors import ConfigError

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
    variables = os.environ if environ is None else environ
    described, target = _load_both(config_dir, dataset, cluster, settings, variables)
    template_name = described.experiment.template or DEFAULT_TEMPLATE
    where = output or Path("out") / target.name / described.name
    return Settings(
        dataset=described.model_copy(update={"source": _located(described.source, variables)}),
        cluster=target.model_copy(update={"local": _located(target.local, variables)}),
        template=load_template(config_dir, template_name),
        template_name=template_name,
        output=Path.cwd() / where,
    )


def _load_both(
    config_dir: Path,
    dataset: str,
    cluster: str,
    settings: Sequence[str],
    environ: Mapping[str, str],
) -> tuple[Dataset, Cluster]:
    """Both files; variables that are missing are named for both at once."""
    try:
        described = load_dataset(config_dir, dataset, settings, environ)
    except ConfigError as error:
        if error.code == "config.missing_variable":
            _add_missing(error, config_dir, cluster, settings, environ)
        raise
    return described, load_cluster(config_dir, cluster, settings, environ)


def _add_missing(
    error: ConfigError,
    config_dir: Path,
    cluster: str,
    settings: Sequence[str],
    environ: Mapping[str, str],
) -> None:
    try:
        load_cluster(config_dir, cluster, settings, environ)
    except ConfigError as other:
        if other.code == error.code:
            message = f"{error.message}; {other.where}: {other.message}"
            raise ConfigError(error.code, message, where=error.where, hint=error.hint) from None


def _located(location: Location, environ: Mapping[str, str]) -> Location:
    """A path made absolute; a bucket with the endpoint that the AWS chain would choose.

    So two ways of naming one server are seen to be one, and a server that is not AWS's own is not
    priced as if it were.
    """
    endpoint = location.endpoint
    if location.url.startswith("s3://") and not endpoint and not location.profile:
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL") or None
    return location.model_copy(
        update={"url": resolve_url(location.url, Path.cwd()), "endpoint": endpoint}
    )
