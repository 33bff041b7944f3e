"""Samples put into a store, and the arrangement that names them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import pyarrow as pa

from larder.manifest.schemas import ARRANGEMENT
from larder.store import Store

__all__ = ["Content", "arrange"]


class Content(NamedTuple):
    """A sample and its bytes.

    Attributes:
        key: What its objects' keys begin with.
        parts: The bytes of each part, by extension.
        label: Number of its class.
        split: The split it falls into.
    """

    key: str
    parts: Mapping[str, bytes]
    label: int | None = None
    split: str = "train"


def arrange(store: Store, samples: Iterable[Content]) -> pa.RecordBatch:
    """Put each part as the object ``KEY.EXT``; rows of `larder.manifest.schemas.ARRANGEMENT`."""
    rows = []
    for sample in samples:
        parts = []
        for ext, data in sorted(sample.parts.items()):
            info = store.put(f"{sample.key}.{ext}", data)
            entry = {"ext": ext, "key": info.key, "size_bytes": info.size_bytes, "etag": info.etag}
            parts.append(entry)
        rows.append(
            {"split": sample.split, "key": sample.key, "label": sample.label, "parts": parts}
        )
    return pa.RecordBatch.from_pylist(rows, schema=ARRANGEMENT)
