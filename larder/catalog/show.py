"""Shows the content of a version, its origin, and the tags, leases and configs for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from larder.catalog.history import check_dataset, short_ids, shown_time
from larder.catalog.stored_dataset import StoredDataset
from larder.jobs.results import Totals
from larder.manifest.sealed import to_plain
from larder.store import object_url
from larder.store.base import Store
from larder.store.own_files import listed
from larder.units import (
    format_amount,
    format_bytes,
    format_changes,
    format_classes,
    format_count,
    format_time,
    row_lines,
)
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.leases import read_leases
from larder.versions.publish import existing_segment
from larder.versions.runs import read_runs
from larder.versions.tags import published_version, read_tag, tag_names

_RUNS = 10


def show(place: StoredDataset, name: str) -> dict[str, Any]:
    """Describe a version, by its ID, at least four of its first digits, or a tag; a JSON document.

    Refused: ``version.missing``, ``version.ambiguous``. DamageError: a document is lost or damaged.
    """
    root = check_dataset(place)
    version = published_version(root, place.dataset, name)
    beside = {info.key: info for info in listed(root, layout.version_prefix(version.id))}
    consumers = layout.consumers_prefix(version.id)
    tags = ((tag, read_tag(root, tag)) for tag in tag_names(root))
    return {
        "dataset": version.dataset,
        "version": version.id,
        "published": format_time(beside[layout.version_key(version.id)].modified_us),
        "location": object_url(root.url, layout.version_prefix(version.id)).rstrip("/"),
        "tags": [name for name, tag in tags if tag and tag.version == version.id],
        "leases": [
            {"holder": each.lease.holder, "until": format_time(each.until_us)}
            for each in read_leases(root)
            if version.id in each.lease.versions
        ],
        "digest": version.digest,
        "inputs": version.inputs,
        "skipped": version.skipped,
        "splits": {name: to_plain(facts) for name, facts in version.splits.items()},
        "classes": list(version.classes),
        "cache": version.cache.kind if version.cache else None,
        "segments": list(_segments(root, version)),
        "files": {role: asdict(totals) for role, totals in _files(version).items()},
        "configs": sorted({key.split("/")[3] for key in beside if key.startswith(consumers)}),
        "card": layout.card_key(version.id) in beside,
        "runs": [to_plain(record) for record in read_runs(root, version.id)],
    }


def _segments(root: Store, version: VersionDocument) -> Iterator[dict[str, Any]]:
    for use in version.segments:
        document = existing_segment(root, use.id)
        yield {
            "segment": use.id,
            "samples": document.samples,
            "omitted": sum(rows.count for rows in use.omitted.values()),
            "bytes": sum(split.bytes for split in document.splits.values()),
            "format": document.shape.format,
            "cache": use.cache,
        }


def _files(version: VersionDocument) -> dict[str, Totals]:
    """Count files and bytes by role; only shards that the version lists count."""
    splits = version.splits.values()
    totals = {"shard": Totals(sum(s.shards for s in splits), sum(s.bytes for s in splits))}
    if version.cache:
        count = sum(map(len, version.cache.splits.values()))
        totals["cache"] = Totals(count, version.cache.bytes)
    for file in version.files:
        totals[file.role] = totals.get(file.role, Totals()) + Totals(1, file.bytes)
    return totals


def show_lines(document: Mapping[str, Any]) -> list[str]:
    classes, segments = document["classes"], document["segments"]
    short = short_ids(each["segment"] for each in segments)
    rows = {
        "at": [document["location"]],
        "time": [shown_time(document["published"])],
        "tags": [", ".join(document["tags"]) or "none"],
        "leases": [f"{each['holder']}, until {each['until']}" for each in document["leases"]],
        "splits": [_split_line(name, facts) for name, facts in document["splits"].items()],
        "classes": [format_classes(classes, len(classes))] if classes else [],
        "segments": [_segment_line(short, each) for each in segments],
        "files": [
            f"{role}: {format_amount(totals, 'file')}" for role, totals in document["files"].items()
        ],
        "skipped": [f"{document['skipped']:,}"] if document["skipped"] else [],
        "configs": [", ".join(document["configs"])] if document["configs"] else [],
        "runs": [line for run in document["runs"][-_RUNS:] for line in _run_lines(run)],
        "inputs": [document["inputs"]],
        "digest": [document["digest"]],
    }
    lines = [f"{document['dataset']} version {document['version']}"]
    return lines + [line for name, texts in rows.items() for line in row_lines(name, texts)]


def _split_line(name: str, facts: Mapping[str, Any]) -> str:
    samples, shards = (format_count(facts[noun], noun[:-1]) for noun in ("samples", "shards"))
    omitted = f", which have {facts['omitted']:,} more" if facts["omitted"] else ""
    return f"{name}: {samples} in {shards}{omitted}, {format_bytes(facts['bytes'])}"


def _segment_line(short: Mapping[str, str], segment: Mapping[str, Any]) -> str:
    omitted = f", {segment['omitted']:,} omitted" if segment["omitted"] else ""
    size = format_bytes(segment["bytes"])
    samples = format_count(segment["samples"], "sample")
    return f"{short[segment['segment']]} {samples}{omitted}, {size}, {segment['format']}"


def _run_lines(run: Mapping[str, Any]) -> Iterator[str]:
    """Yield the time, command and host of a run, its effect, and the changes with it."""
    moved = f"{run['tag']}: {(run['before'] or 'new')[:8]} to {(run['after'] or 'none')[:8]}"
    did = ["published"] if run["published"] else []
    did += [moved] if run["tag"] and run["before"] != run["after"] else []
    who = f"{shown_time(run['began'])} {run['flow_run'] or run['command']} on {run['host']}"
    yield f"{who}: {', '.join(did)}"
    if run["published"] and (counts := format_changes(run["changes"])):
        since = f" since {run['previous'][:8]}" if run["previous"] else ""
        yield f"{counts}{since}"
