"""All consumers, by their names in ``consumer.kind`` of a cluster file."""

from __future__ import annotations

from larder.config.models.cluster import Cluster
from larder.experiments.consumers import croissant, kubeflow, kubernetes, plain, slurm
from larder.experiments.consumers.consumer_interface import ConsumerConfigs
from larder.experiments.consumers.determined import config as determined
from larder.experiments.consumers.sagemaker import config as sagemaker

CONSUMERS: dict[str, ConsumerConfigs] = {
    "determined": determined,
    "sagemaker": sagemaker,
    "kubernetes": kubernetes,
    "kubeflow": kubeflow,
    "slurm": slurm,
    "croissant": croissant,
    "json": plain,
}


def consumer_of(cluster: Cluster) -> ConsumerConfigs:
    return CONSUMERS[cluster.consumer.kind]
