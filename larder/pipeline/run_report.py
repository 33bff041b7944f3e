"""The JSON documents of a plan and of a run, for users and other programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from larder.errors import SHOWN_FAILURES, Failure
from larder.experiments.emit import Written
from larder.jobs.results import Totals
from larder.pipeline.build import Built
from larder.pipeline.cautions import warnings
from larder.pipeline.configs import location
from larder.pipeline.job import root_url
from larder.pipeline.plan import Plan
from larder.pipeline.planned import changes, growth_document, warning_lines
from larder.pipeline.settings import Settings
from larder.pipeline.source import SourceState
from larder.progress import TimedProgress
from larder.store import object_url
from larder.units import format_amount, format_bytes, format_count, format_seconds
from larder.versions.documents import VersionDocument


@dataclass(frozen=True, slots=True)
class Done:
    """What one run did, apart from the version; ``status`` is ``built`` or ``reused``.

    ``objects`` are in the source; ``new_segments`` is 0 or 1; ``reused_shards`` are those of the
    segment that an earlier run had finished; ``skipped`` counts keys and samples left out because
    the dataset file says ``skip``, of which ``failures`` are known by name. ``moved_from`` is the
    version from which the run moved the tag ``latest``, if it did. ``seconds`` is wall time;
    ``stages`` is from `larder.progress.TimedProgress.stages`.
    """

    status: str
    inputs: str
    objects: Totals
    copied: Totals
    new_segments: int
    reused_shards: Totals
    skipped: int
    failures: tuple[Failure, ...]
    moved_from: str | None
    seconds: float
    stages: Mapping[str, Any]


def reused_document(
    found: SourceState,
    version: VersionDocument,
    configs: Sequence[Written],
    times: TimedProgress,
) -> dict[str, Any]:
    """The JSON document of a run that had nothing to do."""
    done = Done(
        status="reused",
        inputs=found.inputs,
        objects=Totals(found.inventory.objects, found.inventory.bytes),
        copied=Totals(),
        new_segments=0,
        reused_shards=Totals(sum(split.shards for split in version.splits.values())),
        skipped=version.skipped,
        failures=(),
        moved_from=None,
        seconds=times.seconds(),
        stages=times.stages(),
    )
    return run_document(found.settings, version, done, configs)


def built_document(
    plan: Plan, built: Built, configs: Sequence[Written], times: TimedProgress
) -> dict[str, Any]:
    """The JSON document of a run that built a version, or found it after planning.

    ``warnings``, the last field, are those of the plan; they exist only if a version was built.
    """
    before = plan.source_state.expected
    done = Done(
        status=built.status,
        inputs=plan.source_state.inputs,
        objects=Totals(plan.source_state.inventory.objects, plan.source_state.inventory.bytes),
        copied=built.copied,
        new_segments=built.new_segments,
        reused_shards=built.reused_shards,
        skipped=built.version.skipped,
        failures=(*plan.sample_order.left_out, *built.omitted)[:SHOWN_FAILURES],
        moved_from=before if before != built.version.id else None,
        seconds=times.seconds(),
        stages=times.stages(),
    )
    settings = plan.source_state.settings
    document = run_document(settings, built.version, done, configs)
    growth = growth_document(plan)
    document["growth"] = {name: growth[name] for name in ("previous", "samples")}
    told = warnings(plan) + ([{"code": "skyplane", "message": built.ahead}] if built.ahead else [])
    return document | ({"warnings": told} if done.status == "built" else {})


def run_document(
    settings: Settings, version: VersionDocument, done: Done, configs: Sequence[Written]
) -> dict[str, Any]:
    return {
        "dataset": version.dataset,
        "version": version.id,
        "digest": version.digest,
        "status": done.status,
        "moved_from": done.moved_from,
        "location": location(settings, version.id),
        "objects": asdict(done.objects),
        "copied": asdict(done.copied),
        "inputs": done.inputs,
        "growth": None,
        "segments": {
            "total": len(version.segments),
            "new": done.new_segments,
            "omitted": version.omitted,
        },
        "shards": {**_shards(settings, version), "reused": done.reused_shards.count},
        "cache": _cache(version),
        "configs": [str(config.path) for config in configs],
        "seconds": round(done.seconds, 3),
        "stages": dict(done.stages),
        "skipped": done.skipped,
        "failures": [asdict(failure) for failure in done.failures],
    }


def _shards(settings: Settings, version: VersionDocument) -> dict[str, Any]:
    splits = version.splits.values()
    root = root_url(settings.dataset, settings.cluster)
    return {
        "count": sum(split.shards for split in splits),
        "bytes": sum(split.bytes for split in splits),
        "samples": sum(split.samples for split in splits),
        "format": settings.dataset.shards.format,
        "patterns": {
            name: [object_url(root, pattern) for pattern in split.patterns]
            for name, split in version.splits.items()
            if split.patterns and not split.omitted
        },
    }


def _cache(version: VersionDocument) -> dict[str, int] | None:
    if version.cache is None:
        return None
    records = sum(version.splits[split].samples for split in version.cache.splits)
    return {"records": records, "bytes": version.cache.bytes}


def run_lines(document: Mapping[str, Any]) -> list[str]:
    """A run as lines for people."""
    shards, cache = document["shards"], document["cache"]
    lines = [
        f"{document['dataset']} {document['status']}: version {document['version']}"
        f" in {format_seconds(document['seconds'])}",
        f"  source   {format_amount(document['objects'])}; {_copied(document)}",
        *_change_lines(document),
        f"  shards   {format_amount(shards, 'shard')}, {format_count(shards['samples'], 'sample')}",
    ]
    if cache:
        records = format_count(cache["records"], "record")
        lines.append(f"  cache    {records}, {format_bytes(cache['bytes'])}")
    if skipped := max(document["skipped"], len(document["failures"])):
        lines.append(f"  skipped  {skipped:,}")
    lines += _failure_lines(document["failures"])
    lines += warning_lines(document)
    if document["status"] == "reused" and document["moved_from"]:
        lines.append(f"  tag      latest names it again; it named {document['moved_from']}")
    lines.append(f"  at       {document['location']}")
    lines += [f"  config   {path}" for path in document["configs"]]
    return lines


def _change_lines(document: Mapping[str, Any]) -> list[str]:
    growth = document["growth"]
    return [f"  changes  {changes(growth)}"] if growth and growth["previous"] else []


def _copied(document: Mapping[str, Any]) -> str:
    copied, objects = document["copied"], document["objects"]
    if not copied["count"]:
        return "none copied"
    everything = copied["count"] == objects["count"]
    return "all copied" if everything else f"{format_amount(copied)} copied"


SHOWN_LINES = 10


def _failure_lines(failures: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [f"           {Failure(**failure).line}" for failure in failures[:SHOWN_LINES]]
    more = len(failures) - SHOWN_LINES
    return [*lines, f"           and {more:,} more (--json lists them)"] if more > 0 else lines
