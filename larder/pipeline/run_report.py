"""The report of a run for users: its JSON document, and its lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from larder.errors import SHOWN_FAILURES, Failure
from larder.jobs.results import Totals
from larder.pipeline.configs import Written, location, submit_command
from larder.pipeline.planning.source_state import SourceState
from larder.pipeline.settings import Settings
from larder.progress import TimedProgress
from larder.segments.stores import root_url
from larder.store import object_url
from larder.units import (
    format_amount,
    format_bytes,
    format_count,
    format_growth,
    format_seconds,
    format_time,
    warning_lines,
)
from larder.versions.documents import VersionDocument

if TYPE_CHECKING:
    from larder.pipeline.build import Built


def reused_document(
    state: SourceState, version: VersionDocument, configs: Sequence[Written], times: TimedProgress
) -> dict[str, Any]:
    """Make the JSON document of a run that had nothing to do."""
    objects = asdict(Totals(state.inventory.objects, state.inventory.bytes))
    document = _document(state.settings, state.inputs, objects, version, configs, times)
    us = state.published_us  # some stores date nothing
    return document | ({"published": format_time(us)} if us else {})


def built_document(
    settings: Settings,
    planned: Mapping[str, Any],
    moved_from: str | None,
    built: Built,
    configs: Sequence[Written],
    times: TimedProgress,
) -> dict[str, Any]:
    """Make the JSON document of a run that built a version, or had planned to.

    ``planned`` is the document of its plan; ``moved_from`` is the version that the tag named
    before.
    """
    failures = [*planned["failures"], *(failure._asdict() for failure in built.omitted)]
    version, growth = built.version, planned["growth"]
    document = _document(settings, planned["inputs"], planned["objects"], version, configs, times)
    document |= {
        "status": built.status,
        "reason": growth["reason"],
        "moved_from": moved_from if moved_from != version.id and not built.pinned else None,
        "pinned": built.pinned,
        "copied": asdict(built.copied),
        "growth": {name: growth[name] for name in ("previous", "samples")},
        "failures": failures[:SHOWN_FAILURES],
    }
    document["segments"]["new"] = built.new_segments
    document["shards"]["reused"] = built.reused_shards.count
    document["command"] = submit_command(settings, configs) if configs else ""
    if built.status == "built":
        document["warnings"] = planned["warnings"]
        if built.ahead:
            document["warnings"].append({"code": "skyplane", "message": built.ahead})
    return document


def _document(
    settings: Settings,
    inputs: str,
    objects: Mapping[str, Any],
    version: VersionDocument,
    configs: Sequence[Written],
    times: TimedProgress,
) -> dict[str, Any]:
    shards = _shards(settings, version)
    return {
        "dataset": version.dataset,
        "version": version.id,
        "digest": version.digest,
        "status": "reused",
        "reason": "neither objects nor options that shape the version have changed",
        "moved_from": None,
        "pinned": None,
        "location": location(settings, version.id),
        "objects": objects,
        "copied": asdict(Totals()),
        "inputs": inputs,
        "growth": None,
        "segments": {"total": len(version.segments), "new": 0, "omitted": version.omitted},
        "shards": {**shards, "reused": shards["count"]},
        "cache": _cache(version),
        "configs": [str(config.path) for config in configs],
        "seconds": round(times.seconds(), 3),
        "stages": dict(times.stages()),
        "skipped": version.skipped,
        "failures": [],
    }


def _shards(settings: Settings, version: VersionDocument) -> dict[str, Any]:
    splits = version.splits.values()
    root = root_url(settings.dataset.name, settings.cluster)
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
    shards, cache, growth = document["shards"], document["cache"], document["growth"]
    lines = [
        f"{status_line(document)} in {format_seconds(document['seconds'])}",
        f"  reason   {document['reason']}",
        f"  source   {format_amount(document['objects'])}; {_copied(document)}",
        *([f"  changes  {format_growth(growth)}"] if growth and growth["previous"] else []),
        f"  shards   {format_amount(shards, 'shard')}, {format_count(shards['samples'], 'sample')}",
    ]
    if cache:
        records = format_count(cache["records"], "record")
        lines.append(f"  cache    {records}, {format_bytes(cache['bytes'])}")
    if skipped := max(document["skipped"], len(document["failures"])):
        lines.append(f"  skipped  {skipped:,}")
    lines += _failure_lines(document["failures"])
    lines += warning_lines(document)
    if document["moved_from"]:
        again = " again" if document["status"] == "reused" else ""
        lines.append(f"  tag      latest names it{again}; it named {document['moved_from']}")
    if pinned := document["pinned"]:
        lines.append(f"  tag      latest is pinned, and stays at {pinned}; so do configs")
    lines.append(f"  at       {document['location']}")
    lines += [f"  config   {path}" for path in document["configs"]]
    if command := document.get("command"):
        lines.append(f"  submit   {command}")
    if card := document.get("card"):
        lines.append(f"  card     {card}")
    return lines


def status_line(document: Mapping[str, Any]) -> str:
    """Say what a run did, and of a reused version since when it exists."""
    since = f" (published {published})" if (published := document.get("published")) else ""
    return f"{document['dataset']} {document['status']}: version {document['version']}{since}"


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
