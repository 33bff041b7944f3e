"""The report of a plan for users: its JSON document, and its rows of at most 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from larder.copy.prices import cost_document, cost_lines
from larder.errors import SHOWN_FAILURES, Failure, printable
from larder.jobs.results import Totals
from larder.manifest.sealed import to_plain
from larder.pipeline.configs import location
from larder.pipeline.delivery_facts import delivery_document
from larder.pipeline.planning.checks import warnings
from larder.pipeline.planning.plan import Plan
from larder.samples.decoders import Decoders
from larder.segments.image_rules import planned_transform
from larder.source.inventory import SHOWN_KEYS
from larder.source.unfit import reading_of
from larder.units import (
    format_amount,
    format_bytes,
    format_classes,
    format_count,
    format_growth,
    format_names,
    format_seconds,
    row_lines,
    warning_lines,
    wrapped,
)

SHOWN_LINES = 10

_OF_FIVE = ("jpg", "webp", "jp2", "j2k")
"""Images with about five bytes of pixels per byte, like ImageNet's JPEGs; other images have two."""
SHOWN_CLASSES = 10

_READINGS = {
    "refused": ", which cannot be read before they are restored",
    "perhaps": ", some of which may be in an archive tier",
    "charged": ", for which reading is charged",
}


def plan_document(plan: Plan) -> dict[str, Any]:
    state, sample_order = plan.source_state, plan.sample_order
    settings, inventory = state.settings, state.inventory
    transform, statistics = planned_transform(settings.dataset), sample_order.statistics
    other = statistics.other_parts
    others = [{**other._asdict(), "ext": None}] if other.objects else []
    return {
        "dataset": settings.dataset.name,
        "version": plan.version,
        "digest": None,
        "status": "planned",
        "location": location(settings, plan.version),
        "objects": asdict(Totals(inventory.objects, inventory.bytes)),
        "copied": asdict(Totals() if plan.published else plan.copies or Totals()),
        "inputs": state.inputs,
        "segments": {
            "total": len(plan.growth.kept) + (1 if plan.new else 0),
            "new": 1 if plan.new and not plan.new.complete else 0,
            "omitted": sum(rows.count for rows in plan.growth.omitted.values()),
        },
        "growth": _growth(plan),
        "shards": {
            **asdict(plan.shards),
            "samples": sample_order.samples,
            "format": settings.dataset.shards.format,
            "exact": plan.exact,
            "images": asdict(transform) if transform else None,
            "splits": {
                name: {**asdict(plan.shards_of_split[name]), "samples": facts.samples}
                for name, facts in sample_order.splits.items()
            },
        },
        "cache": settings.dataset.cache.kind if settings.dataset.cache else None,
        "cache_builder": settings.dataset.cache.builder if settings.dataset.cache else None,
        "cache_bytes": _cache_bytes(plan),
        "excluded": {
            "listed": inventory.considered,
            "not_included": to_plain(inventory.not_included),
            "excluded": to_plain(inventory.excluded),
            "ignored": sample_order.ignored_count,
        },
        "inside": inventory.inside._asdict() if inventory.inside else None,
        "parts": [part._asdict() for part in statistics.parts] + others,
        "classes": _classes(plan) if settings.dataset.labels else None,
        "delivery": delivery_document(state.dataset, state.cluster, plan.choices),
        "mirror": plan.mirror._asdict(),
        "engine": plan.engine._asdict() if plan.engine else None,
        "archived": {
            "to_restore": plan.archived.count,
            "classes": [
                {"name": name, "count": count, "bytes": size_bytes, "reading": reading_of(name)}
                for name, (count, size_bytes) in inventory.classes.items()
            ],
        },
        "cost": cost_document(plan.cost),
        "copy_seconds": None if plan.copy_seconds is None else round(plan.copy_seconds, 1),
        "skipped": sample_order.left_out_count,
        "failures": [failure._asdict() for failure in sample_order.left_out[:SHOWN_FAILURES]],
        "warnings": warnings(plan),
    }


def _growth(plan: Plan) -> dict[str, Any]:
    growth, previous, new = plan.growth, plan.source_state.previous, plan.new
    before = {use.id: use for use in previous.segments} if previous else {}
    omitted_before = sum(
        rows.count for segment in growth.kept for rows in before[segment.id].omitted.values()
    )
    listed_before = sum(split.shards for split in previous.splits.values()) if previous else 0
    listed = sum(facts.shards for facts in growth.listed.values())
    policy, other = growth.decision.policy, growth.decision.other
    same = growth.decision.kind != "keep" or plan.published
    differing = "" if same else "; classes, splits, caches or bad samples differ"
    return {
        "previous": previous.id if previous else None,
        "decision": growth.decision.kind,
        "reason": growth.decision.reason + differing,
        "samples": growth.changes._asdict(),
        "omitted": sum(rows.count for rows in growth.omitted.values()) - omitted_before,
        "unlisted": listed_before - listed,
        "folded": len(growth.decision.folded),
        "new_shards": {
            **asdict(new.shards if new else Totals()),
            "samples": growth.selected.samples if new else 0,
        },
        "read": asdict(growth.selected.read),
        "packed": asdict(growth.selected.packed),
        "caches": asdict(plan.caches),
        "removals": policy.removals if policy else None,
        "other": {
            "removals": other.removals,
            "packed": asdict(other.packed),
            "omitted": other.omitted,
            "unlisted": other.shards,
        }
        if other
        else None,
    }


def _cache_bytes(plan: Plan) -> dict[str, int | None] | None:
    """Estimate the size of each kind of cache: pixels are not known before images are read."""
    dataset, statistics = plan.source_state.dataset, plan.sample_order.statistics
    if dataset.cache is None or dataset.cache.kind == "built":
        return None
    decoders, shape = Decoders(dataset.image_options.uses), dataset.cache.image_shape
    encoded = decoded = resized = 0
    for part in (*statistics.parts, statistics.other_parts):
        is_image, is_jpeg = decoders.is_image(part.ext), part.ext.endswith(_OF_FIVE)
        encoded += part.bytes
        decoded += part.bytes * ((5 if is_jpeg else 2) if is_image else 1)
        if shape:
            channels = 1 if decoders.is_mask(part.ext) else shape.channels
            pixels = part.objects * shape.height * shape.width
            resized += pixels * channels if is_image else part.bytes
    return {"encoded": encoded, "decoded": decoded, "resized": resized if shape else None}


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
    if document["status"] == "reused":
        name, version, configs = (document[key] for key in ("dataset", "version", "configs"))
        if not configs:
            return wrapped(f"{name}: nothing to do, version {version} is current")
        lines = wrapped(f"{name}: version {version} is current, the config would be written")
        return [*lines, *row_lines("config", configs)]
    lines = wrapped(f"plan for {document['dataset']}, version {document['version']}")
    for name, texts in plan_rows(document).items():
        lines += row_lines(name, texts)
    return [*lines, *warning_lines(document)]


def plan_rows(document: Mapping[str, Any]) -> dict[str, Sequence[str]]:
    """Return the lines of a plan for each item; an item may have none."""
    growth, shards, delivery = document["growth"], document["shards"], document["delivery"]
    splits, seconds = shards["splits"].items(), document["copy_seconds"]
    about = "" if shards["exact"] else "about "
    first = growth["previous"] is None
    return {
        "source": [
            format_amount(document["objects"]),
            *_inside_lines(document["inside"]),
            *_excluded_lines(document["excluded"]),
        ],
        "archived": [*_archived_lines(document["archived"])],
        "parts": _part_lines(document["parts"]),
        "classes": _class_lines(document["classes"]),
        "changes": [] if first else [format_growth(growth)],
        "segments": [] if first else [_segments(document), f"because: {growth['reason']}"],
        "packing": [] if first else [_packing(growth), *_instead(growth)],
        "mirror": _mirror_lines(document),
        "shards": [
            _shard_line(shards, about),
            *(f"{name}: {_shard_line(split, about)}" for name, split in splits),
        ],
        "images": _image_lines(shards["images"]),
        "cache": [document["cache"] or "none", *_cache_lines(document)],
        "delivery": [f"{delivery['kind']}: {delivery['reason']}", *_other_deliveries(delivery)],
        "cost": cost_lines(document["cost"]),
        "time": [f"about {format_seconds(seconds)} to copy, as an earlier run took"]
        if seconds is not None
        else [],
        "skipped": _skipped_lines(document),
    }


def _cache_lines(document: Mapping[str, Any]) -> list[str]:
    if document["cache_builder"]:
        return [f"by {document['cache_builder']}"]
    sizes = (document["cache_bytes"] or {}).items()
    text = ", ".join(f"{name} {format_bytes(count)}" for name, count in sizes if count is not None)
    return [f"takes about: {text}"] if text else []


def _inside_lines(inside: Mapping[str, Any] | None) -> list[str]:
    if inside is None:
        return []
    read_before = inside["containers"] - inside["read"]
    containers = f"{inside['containers']:,} archives or tables"
    if inside["containers"] == 1:
        containers = "1 archive or table"
    indexed = f"; {read_before:,} indexed by an earlier run" if read_before else ""
    return [f"{containers} with {format_count(inside['objects'], 'object')}{indexed}"]


def _excluded_lines(excluded: Mapping[str, Any]) -> Iterator[str]:
    of = f"of {format_count(excluded['listed'], 'object')}"
    reasons = {
        "not_included": "not matched by source.include",
        "excluded": "matched by source.exclude or omit",
    }
    for name, reason in reasons.items():
        count, keys = excluded[name]["count"], map(printable, excluded[name]["keys"])
        if count:
            names = format_names(list(keys), SHOWN_KEYS - 1, total=count)
            yield f"{count:,} {of} {reason}: {names}"
    if excluded["ignored"]:
        what = "folder markers, files of labels or annotations"
        yield f"{excluded['ignored']:,} {of} in no sample: {what}"


def _archived_lines(archived: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for objects that are not in the standard storage class."""
    for tier in archived["classes"]:
        if tier["reading"] != "free":
            yield f"{format_amount(tier)} in {tier['name']}{_READINGS[tier['reading']]}"
    if archived["to_restore"]:
        count = format_count(archived["to_restore"], "object")
        yield f"a run needs {count} of them restored first"


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
    least, most = classes["smallest"], classes["largest"]
    ends = f"{format_count(most['samples'], 'sample')} each"
    if least["samples"] < most["samples"]:
        ends = ", ".join(
            f"{end} {classes[end]['name']} with {format_count(classes[end]['samples'], 'sample')}"
            for end in ("smallest", "largest")
        )
    return [format_classes(classes["names"], classes["count"]), ends]


def _segments(document: Mapping[str, Any]) -> str:
    growth, segments = document["growth"], document["segments"]
    text = f"{segments['total']:,}, {segments['new']:,} of them new"
    if growth["omitted"]:
        text += f"; {format_count(growth['omitted'], 'row')} omitted"
    if growth["unlisted"]:
        text += f"; {format_count(growth['unlisted'], 'shard')} listed no longer"
    return text


def _packing(growth: Mapping[str, Any]) -> str:
    new, read, packed, caches = (
        growth[name] for name in ("new_shards", "read", "packed", "caches")
    )
    if not new["count"] and not caches["count"]:
        return "nothing"
    text = f"{format_amount(new, 'new shard')}: {format_amount(read)}"
    if packed["count"]:
        text += f", and {format_amount(packed, 'sample')}, from shards"
    if caches["count"]:
        text += f"; {format_count(caches['count'], 'cache file')}"
        text += f" from {format_bytes(caches['bytes'])} of shards"
    return text


def _instead(growth: Mapping[str, Any]) -> Iterator[str]:
    """Describe the effects of the other policy for removed samples."""
    other = growth["other"]
    if not other or not growth["samples"]["unchanged"]:
        return
    packed, what = other["packed"], []
    if packed["count"]:
        samples = format_count(packed["count"], "sample")
        what.append(f"{samples} (about {format_bytes(packed['bytes'])}) would be packed again")
    if other["omitted"]:
        what.append(f"{format_count(other['omitted'], 'row')} of listed shards would be omitted")
    if what:
        yield f"with growth.removals: {other['removals']}, {' and '.join(what)}"


def _mirror_lines(document: Mapping[str, Any]) -> list[str]:
    mirror, engine = document["mirror"], document["engine"]
    if not mirror["wanted"]:
        return [f"none, because {mirror['reason']}"]
    lines = [f"{format_amount(document['copied'])} to copy, because {mirror['reason']}"]
    if engine:
        lines.append(f"with the {engine['engine']} engine: {engine['reason']}")
    return lines


def _shard_line(shards: Mapping[str, Any], about: str) -> str:
    count, samples = format_count(shards["count"], "shard"), shards["samples"]
    return f"{count}, {about}{format_bytes(shards['bytes'])}, {format_count(samples, 'sample')}"


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


def _other_deliveries(delivery: Mapping[str, Any]) -> Iterator[str]:
    possible = [option["delivery"] for option in delivery["options"] if option["possible"]]
    others = [name for name in possible if name != delivery["kind"]]
    if others:
        yield f"also possible: {', '.join(others)}; larder advise compares them"


def _skipped_lines(document: Mapping[str, Any]) -> list[str]:
    if not document["skipped"]:
        return []
    failures = document["failures"][:SHOWN_LINES]
    lines = [format_count(document["skipped"], "object")]
    lines += [Failure(**failure).line for failure in failures]
    more = document["skipped"] - len(failures)
    return [*lines, f"and {more:,} more (--json lists them)"] if more else lines
