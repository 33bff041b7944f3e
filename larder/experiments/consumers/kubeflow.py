"""Kubeflow: TrainJobs, which are manifests of Kubernetes with templates of their own."""

from __future__ import annotations

from larder.experiments.consumers.kubernetes import DELIVERIES, command, config_files

__all__ = ["DELIVERIES", "TEMPLATES", "command", "config_files"]

TEMPLATES: str | None = "kubeflow"
