"""The emit step: renders the configs of a version, and writes those whose bytes differ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from larder.errors import ConfigError
from larder.experiments.delivery import Advice, ConfigFile, DeliveredSplit, DeliveredVersion
from larder.experiments.emit import Written, differing, emit, write_configs
from larder.pipeline.plan import Plan
from larder.pipeline.settings import Settings
from larder.progress import Progress
from larder.segments.job import root_url
from larder.store import object_url
from larder.store.own_files import published_file_errors
from larder.versions import layout
from larder.versions.documents import VersionDocument


def location(settings: Settings, version: str) -> str:
    root = root_url(settings.dataset, settings.cluster)
    return object_url(root, layout.version_prefix(version)).rstrip("/")


def _rendered(settings: Settings, version: VersionDocument) -> tuple[ConfigFile, ...]:
    cache, omitted = version.cache, sum(facts.omitted for facts in version.splits.values())
    lists = {layout.listed_split(file.path): file.path for file in version.files_of("list")}
    splits = {
        name: DeliveredSplit(
            facts.samples, facts.shards, facts.bytes, facts.patterns, lists.get(name)
        )
        for name, facts in version.splits.items()
    }
    files = (
        {split: tuple(file.path for file in cache.splits[split]) for split in cache.splits}
        if cache
        else None
    )
    delivery = settings.advise(
        segments=len(version.segments), omitted=omitted, unlisted=version.omitted - omitted
    )
    return _emitted(
        settings, version.id, version.digest, delivery, splits, len(version.classes), files
    )


def check_configs(plan: Plan) -> None:
    """Render the configs before there is a version, so that their mistakes cost nothing."""
    settings = plan.source_state.settings
    _check_output(settings.output)
    splits = {
        name: DeliveredSplit(
            facts.samples, plan.shards_of_split[name].count, facts.bytes, ("planned",)
        )
        for name, facts in plan.sample_order.splits.items()
    }
    files = dict.fromkeys(splits, ("planned",)) if settings.dataset.cache else None
    classes = len(plan.sample_order.classes)
    _emitted(settings, plan.version, "0" * 64, plan.delivery, splits, classes, files)


def _emitted(
    settings: Settings,
    version: str,
    digest: str,
    delivery: Advice,
    splits: Mapping[str, DeliveredSplit],
    classes: int,
    cache: Mapping[str, tuple[str, ...]] | None,
) -> tuple[ConfigFile, ...]:
    info = DeliveredVersion(
        dataset=settings.dataset.name,
        version=version,
        digest=digest,
        location=location(settings, version),
        root=root_url(settings.dataset, settings.cluster),
        storage_url=settings.cluster.storage.url,
        delivery=delivery,
        splits=splits,
        classes=classes if settings.dataset.labels else None,
        cache=cache,
    )
    cluster, template = settings.cluster, settings.template
    return emit(info, cluster, template, template_name=settings.template_name)


def emit_configs(
    settings: Settings, version: VersionDocument, *, progress: Progress
) -> tuple[Written, ...]:
    """Render, validate and write the configs of a version."""
    _check_output(settings.output)
    progress.start("emit")
    configs = _rendered(settings, version)
    with published_file_errors():
        written = write_configs(configs, settings.output)
    progress.finish("emit")
    return written


def pending_configs(settings: Settings, version: VersionDocument) -> tuple[Written, ...]:
    """The configs of a version that `emit_configs` would write. Writes nothing."""
    _check_output(settings.output)
    configs = _rendered(settings, version)
    with published_file_errors():
        return differing(configs, settings.output)


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise ConfigError("config.path", "not a directory", where=str(output), hint="see --output")
