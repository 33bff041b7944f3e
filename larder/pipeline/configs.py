"""The emit step: writes the experiment config of a version, if its bytes differ."""

from __future__ import annotations

from pathlib import Path

from larder.errors import ConfigError
from larder.experiments.emit import Written, differing, emit, write_configs
from larder.experiments.version_info import ConfigFile, SplitInfo, VersionInfo
from larder.pipeline.job import root_url
from larder.pipeline.plan import Plan
from larder.pipeline.settings import Settings
from larder.progress import Progress
from larder.store import object_url
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.publish import own_file_errors


def location(settings: Settings, version: str) -> str:
    root = root_url(settings.dataset, settings.cluster)
    return object_url(root, layout.version_prefix(version)).rstrip("/")


def version_info(settings: Settings, version: VersionDocument) -> VersionInfo:
    """What a config needs to know about a version."""
    cache = version.cache
    lists = {layout.listed_split(file.path): file.path for file in version.files_of("list")}
    omitted = sum(facts.omitted for facts in version.splits.values())
    return VersionInfo(
        dataset=version.dataset,
        version=version.id,
        digest=version.digest,
        location=location(settings, version.id),
        root=root_url(settings.dataset, settings.cluster),
        storage_url=settings.cluster.storage.url,
        delivery=settings.advise(
            segments=len(version.segments), omitted=omitted, unlisted=version.omitted - omitted
        ),
        splits={
            name: SplitInfo(
                facts.samples, facts.shards, facts.bytes, facts.patterns, lists.get(name)
            )
            for name, facts in version.splits.items()
        },
        classes=len(version.classes) if settings.dataset.labels else None,
        cache={split: tuple(part.path for part in parts) for split, parts in cache.splits.items()}
        if cache
        else None,
    )


def _render(settings: Settings, facts: VersionInfo) -> tuple[ConfigFile, ...]:
    return emit(
        facts,
        settings.cluster,
        settings.template,
        template_name=settings.template_name,
    )


def check_configs(plan: Plan) -> None:
    """Render the configs before there is a version, so that their mistakes cost nothing."""
    settings = plan.source_state.settings
    _check_output(settings.output)
    splits = {
        name: SplitInfo(facts.samples, plan.shards_of_split[name].count, facts.bytes, ("planned",))
        for name, facts in plan.sample_order.splits.items()
    }
    _render(
        settings,
        VersionInfo(
            dataset=settings.dataset.name,
            version=plan.version,
            digest="0" * 64,
            location=location(settings, plan.version),
            root=root_url(settings.dataset, settings.cluster),
            storage_url=settings.cluster.storage.url,
            delivery=plan.delivery,
            splits=splits,
            classes=len(plan.sample_order.classes) if settings.dataset.labels else None,
            cache=dict.fromkeys(splits, ("planned",)) if settings.dataset.cache else None,
        ),
    )


def emit_configs(
    settings: Settings, version: VersionDocument, *, progress: Progress
) -> tuple[Written, ...]:
    """Render, validate and write the configs of a version."""
    _check_output(settings.output)
    progress.start("emit")
    configs = _render(settings, version_info(settings, version))
    with own_file_errors():
        written = write_configs(configs, settings.output)
    progress.finish("emit")
    return written


def pending_configs(settings: Settings, version: VersionDocument) -> tuple[Written, ...]:
    """The configs of a version that `emit_configs` would write. Writes nothing."""
    _check_output(settings.output)
    configs = _render(settings, version_info(settings, version))
    with own_file_errors():
        return differing(configs, settings.output)


def _check_output(output: Path) -> None:
    if output.exists() and not output.is_dir():
        raise ConfigError("config.path", "not a directory", where=str(output), hint="see --output")
