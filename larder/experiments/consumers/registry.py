"""All consumers, by their names in ``consumer.kind`` of a cluster file, and their interface."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from larder.config.models.cluster import Cluster
from larder.experiments.delivery import ConfigFile, ConfigRequest


class ConsumerConfigs(Protocol):
    """Pure functions that make the configs of one kind of consumer."""

    DELIVERIES: tuple[str, ...]
    """Deliveries that the consumer can render; the others are refused."""

    TEMPLATE: str | None
    """Path of the default template in ``configs/experiments``; None if the consumer takes none.
    All templates of the consumer are in the same folder."""

    def config_files(self, request: ConfigRequest) -> tuple[ConfigFile, ...]:
        """Make the configs of a version, valid by the consumer's own rules.

        Configs of a planned version are made only to find refusals, and are not written.
        """

    def command(self, output: Path, names: Sequence[str], cluster: Cluster) -> str:
        """Return the command that submits the files ``names``, which were written to ``output``."""


CONSUMERS = {
    "determined": "determined.config",
    "sagemaker": "sagemaker.config",
    "kubernetes": "kubernetes",
    "kubeflow": "kubeflow",
    "slurm": "slurm",
    "croissant": "croissant",
    "json": "plain",
}
"""Modules of `ConsumerConfigs` in this package; a run imports the module of its consumer."""


def consumer_configs(kind: str) -> ConsumerConfigs:
    module: Any = import_module(f"{__package__}.{CONSUMERS[kind]}")
    configs: ConsumerConfigs = module
    return configs


def consumer_of(cluster: Cluster) -> ConsumerConfigs:
    return consumer_configs(cluster.consumer.kind)
