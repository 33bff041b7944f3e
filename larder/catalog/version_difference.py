"""Compares two versions of a dataset, sample by sample.

Segments that both versions have are compared only by the rows that one version omits. Other samples
are compared as in growth: a part is the same if its object has the same key, and either the etag or
the stored bytes are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from larder.catalog.history import check_dataset
from larder.catalog.stored_dataset import StoredDataset
from larder.disk import scratch
from larder.errors import ConfigError
from larder.growth.previous import PACKED, Previous, PreviousSegment, read_previous
from larder.manifest.query import Stream, tables_in
from larder.manifest.schemas import table
from larder.manifest.sort import sorted_query
from larder.manifest.spool import Spool
from larder.units import format_changes, table_lines
from larder.versions.omitted import Omitted
from larder.versions.tags import published_version

DIFFERENT = table(
    kind="string",
    split="string",
    key="string",
    split_before="string?",
    class_before="string?",
    **{"class": "string?"},
)
"""One row per sample that differs; ``kind`` is one of `larder.growth.compare.Changes`.

Classes are names, which stay the same where numbers change. A removed sample has its former split
and class.
"""

_KINDS = ("unchanged", "added", "changed", "relabelled", "moved", "removed")
_SHOWN = 30

_SAMPLES = pa.schema(
    [PACKED.field("key"), PACKED.field("split"), ("label", pa.string()), PACKED.field("parts")]
)

_COMPARE = """
    WITH pairs AS (
        SELECT
            coalesce(after.key, before.key) AS key,
            coalesce(after.split, before.split) AS split,
            if(after.key IS NULL, before.label, after.label) AS class,
            before.split AS split_before, before.label AS class_before,
            before.key IS NULL AS is_added, after.key IS NULL AS is_removed,
            coalesce(list_bool_and([
                pair[1].ext IS NOT DISTINCT FROM pair[2].ext
                    AND pair[1].source IS NOT DISTINCT FROM pair[2].source
                    AND (pair[1].etag = pair[2].etag
                        OR (pair[1].crc32c = pair[2].crc32c AND pair[1].length = pair[2].length))
                FOR pair IN list_zip(before.parts, after.parts)
            ]), true) AS is_alike
        FROM before FULL JOIN after ON before.key = after.key
    )
    SELECT CASE
        WHEN is_added THEN 'added'
        WHEN is_removed THEN 'removed'
        WHEN NOT is_alike THEN 'changed'
        WHEN split <> split_before THEN 'moved'
        WHEN class IS DISTINCT FROM class_before THEN 'relabelled'
    END AS kind, split, key, split_before, class_before, class
    FROM pairs WHERE kind IS NOT NULL
"""


def diff(
    place: StoredDataset, before: str, after: str = "latest", keys: bool = False
) -> dict[str, Any]:
    """Compare two versions by kind, split and class; a JSON document.

    With ``keys``, the document has an iterator of lists of the differing rows as ``keys``. Memory:
    ``memory.tables_bytes``; further rows are in temporary files.

    Refused: ``version.missing``, ``version.ambiguous``.
    """
    root = check_dataset(place)
    dataset, _, after = after.rpartition("@")
    if dataset not in ("", place.dataset):
        message, hint = "they are versions of two datasets", f"write {place.dataset}@VERSION"
        raise ConfigError("config.invalid_flag", message, where=f"{dataset}@{after}", hint=hint)
    old, new = (published_version(root, place.dataset, name) for name in (before, after))
    rows = _differing(read_previous(root, old), read_previous(root, new), place)
    counts: Counter[tuple[str, str, str | None]] = Counter()
    for batch in rows.read():
        columns = (batch.column(name).to_pylist() for name in ("kind", "split", "class"))
        counts.update(zip(*columns, strict=True))
    kinds = dict.fromkeys(_KINDS, 0)
    for (kind, _, _), count in counts.items():
        kinds[kind] += count
    samples = sum(split.samples for split in new.splits.values())
    kinds["unchanged"] = samples - sum(kinds.values()) + kinds["removed"]
    document: dict[str, Any] = {
        "dataset": place.dataset,
        "before": old.id,
        "after": new.id,
        "samples": kinds,
        "by": [
            {"kind": kind, "split": split, "class": label, "samples": count}
            for (kind, split, label), count in counts.items()
        ],
    }
    return document | {"keys": (batch.to_pylist() for batch in rows.read())} if keys else document


def _differing(before: Previous, after: Previous, place: StoredDataset) -> Spool:
    """Return the rows of `DIFFERENT`, ordered by kind, split and key."""
    inputs = {"before": _samples(_left(before, after)), "after": _samples(_left(after, before))}
    with scratch() as folder, tables_in(folder, place.cluster.memory.tables_bytes):
        by = ["kind", "split", "key"]
        return Spool.of(sorted_query(_COMPARE, inputs, DIFFERENT, by, work_dir=folder), DIFFERENT)


def _left(version: Previous, other: Previous) -> Previous:
    """Return a version without the segment rows that both versions use."""
    twins = {segment.id: segment for segment in other.segments}
    segments = (
        replace(segment, omitted=_omitted_or_shared(segment, twins[segment.id]))
        if segment.id in twins
        else segment
        for segment in version.segments
    )
    left = tuple(segment for segment in segments if segment.before.any())
    return version._replace(segments=left)


def _omitted_or_shared(segment: PreviousSegment, twin: PreviousSegment) -> dict[str, Omitted]:
    """Return the rows of a segment that its version omits, or that both versions use."""
    omitted = {}
    for split, facts in segment.document.splits.items():
        masks = (
            each.omitted.get(split, Omitted.none()).mask(0, facts.samples)
            for each in (segment, twin)
        )
        gone, gone_in_twin = masks
        rows = Omitted.of_mask(gone | ~gone_in_twin)
        if rows.count:
            omitted[split] = rows
    return omitted


def _samples(version: Previous) -> Stream:
    names = pa.array(version.version.classes, pa.string())

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in version.samples().batches:
            labels = batch.column("label")
            is_class = pc.and_(pc.greater_equal(labels, 0), pc.less(labels, len(names)))
            named = names.take(pc.if_else(is_class, labels, None))
            columns = [batch.column("key"), batch.column("split"), named, batch.column("parts")]
            yield pa.RecordBatch.from_arrays(columns, schema=_SAMPLES)

    return Stream(_SAMPLES, batches())


def diff_lines(document: Mapping[str, Any]) -> list[str]:
    name = f"{document['dataset']} from {document['before'][:8]} to {document['after'][:8]}"
    lines = [f"{name}: {format_changes(document['samples']) or 'no samples'}"]
    rows = [["kind", "split", "class", "samples"]]
    largest = sorted(document["by"], key=lambda each: -each["samples"])[:_SHOWN]
    for each in largest:
        rows.append([each["kind"], each["split"], each["class"] or "", f"{each['samples']:,}"])
    more = len(document["by"]) - len(largest)
    lines += table_lines(rows) if largest else []
    return [*lines, f"and {more:,} more (--json lists them)"] if more else lines
