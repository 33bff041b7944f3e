"""Kubeflow: TrainJobs, which are manifests of Kubernetes with templates of their own."""

from __future__ import annotations

from larder.experiments.consumers.kubernetes import command, config_files

__all__ = ["DELIVERIES", "TEMPLATE", "command", "config_files"]

DELIVERIES: tuple[str, ...] = ("volume", "bind_mount", "stream")
TEMPLATE: str | None = "kubeflow/default.yaml"
