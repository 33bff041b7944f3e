"""The config files of a version, and writing those that changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larder.config.models import Cluster
from larder.errors import NotFoundError
from larder.experiments import determined
from larder.experiments.delivery import ConfigFile, DeliveredVersion
from larder.experiments.validate import validate
from larder.store import open_store
from larder.store.base import Store


@dataclass(frozen=True, slots=True)
class Written:
    """A config file; ``changed`` says whether it was written."""

    path: Path
    changed: bool


def emit(
    delivered: DeliveredVersion,
    cluster: Cluster,
    template: dict[str, Any],
    *,
    template_name: str = "",
) -> tuple[ConfigFile, ...]:
    """Render the configs of a version and validate them. Pure."""
    return _CONSUMERS[cluster.consumer.kind](delivered, cluster, template, template_name)


def _determined(
    delivered: DeliveredVersion,
    cluster: Cluster,
    template: dict[str, Any],
    template_name: str,
) -> tuple[ConfigFile, ...]:
    config = determined.render(template, delivered, cluster, where=template_name)
    validate(config, cluster.consumer.release, where=template_name)
    source = f" from {template_name}" if template_name else ""
    header = (
        f"Made by Larder{source} for the cluster {cluster.name}; rewritten by every run.",
        f"dataset: {delivered.dataset}",
        f"version: {delivered.version}",
        f"content digest: {delivered.digest}",
        delivered.delivery.sentence,
    )
    return (ConfigFile("experiment.yaml", determined.to_yaml(config, header)),)


_Renderer = Callable[
    [DeliveredVersion, Cluster, dict[str, Any], str],
    tuple[ConfigFile, ...],
]
_CONSUMERS: dict[str, _Renderer] = {"determined": _determined}


def write_configs(files: Iterable[ConfigFile], output_dir: Path) -> tuple[Written, ...]:
    """Write each file whose bytes differ from the existing file, completely or not at all."""
    output_dir = output_dir.absolute()
    store = open_store(str(output_dir))
    return tuple(
        Written(output_dir / file.name, _replace(store, file.name, file.text.encode()))
        for file in files
    )


def differing(files: Iterable[ConfigFile], output_dir: Path) -> tuple[Written, ...]:
    """The files that `write_configs` would write, because their bytes differ. Writes nothing."""
    output_dir = output_dir.absolute()
    store = open_store(str(output_dir))
    changed = [file for file in files if not _stands(store, file.name, file.text.encode())]
    return tuple(Written(output_dir / file.name, changed=True) for file in changed)


def _replace(store: Store, key: str, data: bytes) -> bool:
    if _stands(store, key, data):
        return False
    store.put(key, data)
    return True


def _stands(store: Store, key: str, data: bytes) -> bool:
    try:
        return bool(store.get(key) == data)
    except NotFoundError:
        return False
