"""Puts samples into a store, and makes the sample order that names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from larder.manifest.schemas import SAMPLE_ORDER
from larder.store import Store

__all__ = ["Content", "order_samples"]


class Content(NamedTuple):
    """A sample and its bytes.

    Attributes:
        key: The beginning of its objects' keys.
        parts: The bytes of each part, by extension.
        label: Number of its class.
        split: Its split.
    """

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
