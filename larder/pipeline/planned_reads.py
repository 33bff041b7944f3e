"""What a run reads to pack its samples, and where: for the price of its plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from larder.manifest.extents import is_own
from larder.manifest.files import read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.pipeline.results import Totals
from larder.pipeline.selected import Selected
from larder.pipeline.source import SourceState
from larder.samples.order import FROM_PREVIOUS, from_objects
from larder.shards.spans import SPAN_BYTES


class PlannedReads(NamedTuple):
    """Requests that read objects, and the bytes.

    Attributes:
        given: Objects of the source, or their copies in the mirror.
        own: What is in containers of Larder's own: rows of tables, and entries of annotation files.
    """

    given: Totals
    own: Totals


def planned_reads(found: SourceState, selected: Selected) -> PlannedReads:
    """What is read for the new segment: about, because neighbours in containers share requests.

    Args:
        found: The state of the source.
        selected: The samples of the new segment.
    """
    own = _own(found, selected)
    given = Totals(selected.read.count - own.count, selected.read.bytes - own.bytes)
    if found.dataset.shards.shuffle_seed is not None:
        return PlannedReads(given, own)
    inside = found.inventory.inside
    containers = inside.containers if inside else 0
    if inside is not None:  # each of the other objects takes a request of its own
        given = _together(given, max(containers, found.inventory.listed))
    return PlannedReads(given, _together(own, containers + len(found.annotations)))


def _together(objects: Totals, apart: int) -> Totals:
    """The same with fewer requests.

    Args:
        objects: The objects.
        apart: Number of their containers, and of objects in none: these share no request.
    """
    spans = math.ceil(objects.bytes / SPAN_BYTES) + apart
    return replace(objects, count=min(objects.count, spans))


def _own(found: SourceState, selected: Selected) -> Totals:
    """The parts that are read from containers of Larder's own."""
    total = Totals()
    if found.dataset.source.rows is None and not found.annotations:
        return total
    columns = ("parts", *FROM_PREVIOUS)
    path, rows = selected.file.path, selected.samples
    for batch in read_manifest(path, SAMPLE_ORDER, columns=columns, rows=rows):
        read = batch.filter(pa.array(from_objects(batch)))
        parts = read.column("parts").flatten()
        sizes = parts.field("size_bytes").filter(is_own(parts.field("etag")))
        total += Totals(len(sizes), pc.sum(sizes).as_py() or 0)
    return total
