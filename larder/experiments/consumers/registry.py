"""All consumers, by their names in ``consumer.kind`` of a cluster file."""

from __future__ import annotations

from larder.config.models import Cluster
from larder.experiments.consumers.base import Consumer
from larder.experiments.consumers.determined import config as determined
from larder.experiments.consumers.sagemaker import config as sagemaker

CONSUMERS: dict[str, Consumer] = {
    "determined": determined,
    "sagemaker": sagemaker,
}


def consumer_of(cluster: Cluster) -> Consumer:
    return CONSUMERS[cluster.consumer.kind]


def deliveries_of(cluster: Cluster) -> tuple[str, ...]:
    """The deliveries that the consumer can render with what the cluster has."""
    file_system = cluster.consumer.file_system
    missing = {"efs", "fsx"} - {file_system.type if file_system else ""}
    return tuple(each for each in consumer_of(cluster).DELIVERIES if each not in missing)
