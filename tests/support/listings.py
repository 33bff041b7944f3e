"""Objects that nobody has listed, and the order of their samples."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

from larder.config.models.dataset import Dataset
from larder.manifest.schemas import OBJECTS
from larder.samples.sample_order import SampleOrder, order_samples


def etag_of(key: str) -> str:
    return hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()


def object_batches(sizes: Iterable[str] | Mapping[str, int], cut: int) -> Iterator[pa.RecordBatch]:
    """Rows of ``OBJECTS`` in the order of keys, so many at a time; of one byte, or of a size."""
    lengths = dict(sizes) if isinstance(sizes, Mapping) else dict.fromkeys(sizes, 1)
    rows = [
        {"key": key, "size_bytes": lengths[key], "etag": etag_of(key), "modified": 0}
        for key in sorted(lengths, key=str.encode)
    ]
    for start in range(0, len(rows), cut):
        yield pa.RecordBatch.from_pylist(rows[start : start + cut], schema=OBJECTS)


def ordered(
    folder: Path,
    objects: Iterable[pa.RecordBatch],
    label_files: Mapping[str, bytes] | None = None,
    published: Iterable[pa.RecordBatch] = (),
    **fields: Any,
) -> SampleOrder:
    """The order of the samples of a dataset with these fields, in a file of the folder."""
    return order_samples(
        objects,
        Dataset.model_validate({"name": "x", "source": {"url": "/x"}, **fields}),
        label_files=label_files or {},
        out=folder / "out.parquet",
        work_dir=folder / "work",
        published=published,
    )
