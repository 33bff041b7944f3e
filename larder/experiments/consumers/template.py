"""What consumers have in common: parts of a template, and what it must not have."""

from __future__ import annotations

from typing import Any

from larder.errors import ConfigError
from larder.experiments.delivery import DeliveredVersion


def section(config: dict[str, Any], key: str, kind: type[Any], where: str) -> Any:
    """The template's own section, or a new one, as part of ``config``."""
    if config.get(key) is None:
        config[key] = kind()
    if not isinstance(config[key], kind):
        noun = "a list" if kind is list else "a mapping"
        raise refused(f"{key} must be {noun}", where, "fix the template")
    return config[key]


def refused(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.template", message, where=where, hint=hint)


def job_name(delivered: DeliveredVersion) -> str:
    """A name that SageMaker and Kubernetes accept: a dataset's may have underscores."""
    name = delivered.dataset.replace("_", "-").strip("-")[:50].rstrip("-")
    return f"{name}-{delivered.version[:8]}"
