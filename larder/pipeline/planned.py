"""A plan for users: its JSON document, and its lines of at most 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from larder.config.models import Dataset
from larder.errors import Failure
from larder.failures import SHOWN_FAILURES
from larder.pipeline.cautions import cautions
from larder.pipeline.emit import location
from larder.pipeline.image_rules import planned_transform
from larder.pipeline.plan import Plan
from larder.pipeline.planned_growth import growth_document, growth_lines
from larder.pipeline.planned_price import (
    archived_lines,
    mirror_lines,
    priced_document,
)
from larder.pipeline.results import Totals
from larder.transfer.inventory import SHOWN_KEYS, LeftOut
from larder.transfer.prices import cost_lines
from larder.units import format_bytes, format_count, format_names, format_seconds

WIDTH = 80

SHOWN_LINES = 10
SHOWN_CLASSES = 5


def plan_document(plan: Plan) -> dict[str, Any]:
    """The JSON document of a plan for a dataset that has to be built."""
    found, sample_order = plan.source_state, plan.sample_order
    settings = found.settings
    copies = plan.copies or Totals()
    return {
        "dataset": settings.dataset.name,
        "version": plan.version,
        "digest": None,
        "status": "planned",
        "location": location(settings, plan.version),
        "objects": asdict(Totals(found.inventory.objects, found.inventory.bytes)),
        "copied": asdict(Totals() if plan.published else copies),
        "inputs": found.inputs,
        "segments": {
            "total": len(plan.kept) + (1 if plan.new else 0),
            "new": 1 if plan.new and not plan.new.complete else 0,
            "omitted": sum(rows.count for rows in plan.growth.omitted.values()),
        },
        "growth": growth_document(plan),
        "shards": {
            **asdict(plan.shards),
            "samples": sample_order.samples,
            "format": settings.dataset.shards.format,
            "exact": plan.exact,
            "images": _transform(settings.dataset),
            "splits": {
                name: {**asdict(plan.shards_of_split[name]), "samples": facts.samples}
                for name, facts in sample_order.splits.items()
            },
        },
        "cache": settings.dataset.cache.records if settings.dataset.cache else None,
        "excluded": _excluded(plan),
        "inside": asdict(found.inventory.inside) if found.inventory.inside else None,
        "parts": [*map(asdict, sample_order.statistics.parts), *_other_parts(plan)],
        "classes": _classes(plan) if settings.dataset.labels else None,
        "delivery": {"kind": plan.delivery.delivery, "reason": plan.delivery.sentence},
        **priced_document(plan),
        "copy_seconds": None if plan.copy_seconds is None else round(plan.copy_seconds, 1),
        "skipped": sample_order.left_out_count,
        "failures": [asdict(failure) for failure in sample_order.left_out[:SHOWN_FAILURES]],
        "warnings": warnings(plan),
    }


def _transform(dataset: Dataset) -> dict[str, Any] | None:
    transform = planned_transform(dataset)
    return asdict(transform) if transform else None


def _image_lines(transform: Mapping[str, Any] | None) -> list[str]:
    if transform is None:
        return []
    size, format_ = transform["resize"], transform["format"]
    resized = f"resized to {size} pixels and " if size else ""
    kind = "a PNG" if format_ == "png" else f"a JPEG of quality {transform['quality']}"
    kept = " or a PNG, as it was," if format_ == "keep" else ""
    lines = [f"each is {resized}stored as {kind}{kept} by Pillow {transform['codecs']['pillow']}"]
    if transform["masks"]:
        lines.append(f"masks, of which no pixels are mixed: {', '.join(transform['masks'])}")
    return lines


def warnings(plan: Plan) -> list[dict[str, str]]:
    """The warnings of a plan, for the documents of the plan and of the run that built it."""
    return [asdict(caution) for caution in cautions(plan)]


def _excluded(plan: Plan) -> dict[str, Any]:
    inventory = plan.source_state.inventory
    return {
        "listed": inventory.considered,
        "not_included": _left_out(inventory.not_included),
        "excluded": _left_out(inventory.excluded),
        "ignored": plan.sample_order.ignored_count,
    }


def _left_out(found: LeftOut) -> dict[str, Any]:
    return {"count": found.count, "keys": list(found.keys)}


def _other_parts(plan: Plan) -> list[dict[str, Any]]:
    other = plan.sample_order.statistics.other_parts
    return [{**asdict(other), "ext": None}] if other.objects else []


def _classes(plan: Plan) -> dict[str, Any]:
    names, samples = plan.sample_order.classes, plan.sample_order.class_samples
    smallest, largest = samples.index(min(samples)), samples.index(max(samples))
    return {
        "count": len(names),
        "names": list(names[:SHOWN_CLASSES]),
        "smallest": {"name": names[smallest], "samples": samples[smallest]},
        "largest": {"name": names[largest], "samples": samples[largest]},
    }


def plan_lines(document: Mapping[str, Any]) -> list[str]:
    """A plan as lines for people."""
    if document["status"] == "reused":
        name, version, configs = (document[key] for key in ("dataset", "version", "configs"))
        if not configs:
            return _wrapped(f"{name}: nothing to do, version {version} is current")
        lines = _wrapped(f"{name}: version {version} is current, the config would be written")
        return [*lines, *_row("config", configs)]
    shards, delivery = document["shards"], document["delivery"]
    about = "" if shards["exact"] else "about "
    rows = {
        "source": [
            amount(document["objects"], "object"),
            *_inside_lines(document["inside"]),
            *_excluded_lines(document["excluded"]),
        ],
        "archived": archived_lines(document),
        "parts": _part_lines(document["parts"]),
        "classes": _class_lines(document["classes"]),
        **dict(growth_lines(document)),
        "mirror": mirror_lines(document),
        "shards": [
            _shard_line(shards, about),
            *(f"{name}: {_shard_line(split, about)}" for name, split in shards["splits"].items()),
        ],
        "images": _image_lines(shards["images"]),
        "cache": [document["cache"] or "none"],
        "delivery": [f"{delivery['kind']}: {delivery['reason']}"],
        "cost": cost_lines(document["cost"]),
        "time": _time_lines(document["copy_seconds"]),
        "skipped": _skipped_lines(document),
    }
    lines = _wrapped(f"plan for {document['dataset']}, version {document['version']}")
    for name, texts in rows.items():
        lines += _row(name, texts)
    return [*lines, *warning_lines(document)]


def warning_lines(document: Mapping[str, Any]) -> list[str]:
    """The warnings of a document, if it has any, as rows for people."""
    rows = (_row("warning", [warning["message"]]) for warning in document.get("warnings", ()))
    return [line for row in rows for line in row]


def _wrapped(text: str, first: str = "", indent: str = "") -> list[str]:
    """Text as lines of 80 columns; only a longer word makes a longer line."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _row(name: str, texts: Sequence[str]) -> list[str]:
    """A name, followed by strings that each start a new line."""
    lines: list[str] = []
    for text in texts:
        lines += _wrapped(text, f"  {'' if lines else name:<8} ", " " * 13)
    return lines


def _inside_lines(inside: Mapping[str, Any] | None) -> list[str]:
    if inside is None:
        return []
    read_before = inside["containers"] - inside["read"]
    containers = f"{inside['containers']:,} archives or tables"
    if inside["containers"] == 1:
        containers = "1 archive or table"
    indexed = f"; {read_before:,} indexed by an earlier run" if read_before else ""
    return [f"{containers} with {format_count(inside['objects'], 'object')}{indexed}"]


def _excluded_lines(excluded: Mapping[str, Any]) -> list[str]:
    reasons = {
        "not_included": "not matched by source.include",
        "excluded": "matched by source.exclude",
    }
    listed = format_count(excluded["listed"], "object")
    lines = [
        f"{excluded[name]['count']:,} of {listed} {reason}: {_some(excluded[name])}"
        for name, reason in reasons.items()
        if excluded[name]["count"]
    ]
    if excluded["ignored"]:
        lines.append(
            f"{excluded['ignored']:,} of {listed} in no sample: folder markers, files of labels or"
            " annotations"
        )
    return lines


def _some(left_out: Mapping[str, Any]) -> str:
    keys = list(map(_printable, left_out["keys"]))
    return format_names(keys, SHOWN_KEYS - 1, total=left_out["count"])


def _printable(key: str) -> str:
    return key if key.isprintable() else repr(key)[1:-1]


def _part_lines(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    lines = [
        f"{part['ext'] or 'others'} {format_count(part['objects'], 'object')},"
        f" {format_bytes(part['bytes'])}"
        for part in parts[:SHOWN_LINES]
    ]
    more = len(parts) - len(lines)
    return [*lines, f"and {format_count(more, 'extension')} more"] if more else lines


def _class_lines(classes: Mapping[str, Any] | None) -> list[str]:
    if classes is None:
        return ["none"]
    names = format_names(classes["names"], SHOWN_CLASSES - 1, total=classes["count"])
    least, most = classes["smallest"], classes["largest"]
    ends = f"{format_count(most['samples'], 'sample')} each"
    if least["samples"] < most["samples"]:
        ends = f"{_class_line('smallest', least)}, {_class_line('largest', most)}"
    return [f"{classes['count']:,}: {names}", ends]


def _class_line(end: str, found: Mapping[str, Any]) -> str:
    return f"{end} {found['name']} with {format_count(found['samples'], 'sample')}"


def _shard_line(shards: Mapping[str, Any], about: str) -> str:
    count, samples = format_count(shards["count"], "shard"), shards["samples"]
    return f"{count}, {about}{format_bytes(shards['bytes'])}, {format_count(samples, 'sample')}"


def _time_lines(seconds: float | None) -> list[str]:
    if seconds is None:
        return []
    return [f"about {format_seconds(seconds)} to copy, as an earlier run took"]


def _skipped_lines(document: Mapping[str, Any]) -> list[str]:
    if not document["skipped"]:
        return []
    failures = document["failures"][:SHOWN_LINES]
    lines = [format_count(document["skipped"], "object")]
    lines += [Failure(**failure).line for failure in failures]
    more = document["skipped"] - len(failures)
    return [*lines, f"and {more:,} more (--json lists them)"] if more else lines


def amount(count: Mapping[str, int], noun: str) -> str:
    """``12 objects, 3.4 MB``: a count and its bytes."""
    return f"{format_count(count['count'], noun)}, {format_bytes(count['bytes'])}"
