"""Kubeflow: TrainJobs, which are manifests of Kubernetes with templates of their own."""

from __future__ import annotations

from larder.experiments.consumers.kubernetes import command, config_files

__all__ = ["DELIVERIES", "TEMPLATES", "command", "config_files"]

DELIVERIES: tuple[str, ...] = ("volume", "bind_mount", "stream")
TEMPLATES: str | None = "kubeflow"
