"""Puts samples into a store, and makes the sample order that names them."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from larder.manifest.schemas import SAMPLE_ORDER
from larder.store import Store


class Content(NamedTuple):
    """A sample and its bytes by extension; ``key`` is the beginning of its objects' keys."""

    key: str
    parts: Mapping[str, bytes]
    label: int | None = None
    split: str = "train"


def order_samples(store: Store, samples: Iterable[Content]) -> pa.RecordBatch:
    """Put each part as object ``KEY.EXT``; returns rows of the schema ``SAMPLE_ORDER``."""
    rows = []
    for sample in samples:
        parts = []
        for ext, data in sorted(sample.parts.items()):
            info = store.put(f"{sample.key}.{ext}", data)
            entry = {"ext": ext, "key": info.key, "size_bytes": info.size_bytes, "etag": info.etag}
            parts.append({**entry, "unchanged": False})
        rows.append(
            {"split": sample.split, "key": sample.key, "label": sample.label, "parts": parts}
        )
    return pa.RecordBatch.from_pylist(rows, schema=SAMPLE_ORDER)


def with_packed(order: pa.RecordBatch, places: Iterable[Mapping[str, Any]]) -> pa.RecordBatch:
    """The same rows of ``SAMPLE_ORDER``, read from old shards if these have them."""
    by_key = {place["key"]: place for place in places}
    found = [by_key.get(key) for key in order.column("key").to_pylist()]
    at = SAMPLE_ORDER.get_field_index("packed")
    return order.set_column(
        at, SAMPLE_ORDER.field(at), pa.array(found, SAMPLE_ORDER.field(at).type)
    )
