"""The extensions that parts have in shards, if images are stored in another format."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from larder.config.shape import Transform
from larder.samples.images import role

_EXTS = {"jpeg": "jpg", "png": "png"}


def stored_ext(ext: str, transform: Transform) -> str:
    """The extension of a part in shards: that of the format if images get one."""
    found = role(ext)
    kind = "png" if found.name in transform.masks else transform.format
    if not found.image or kind == "keep":
        return ext
    return f"{found.name}.{_EXTS[kind]}" if found.name else _EXTS[kind]


def with_stored_exts(
    batches: Iterable[pa.RecordBatch], transform: Transform | None
) -> Iterator[pa.RecordBatch]:
    """Parts, rows with a column ``ext``, with the extensions that they have in shards."""
    for batch in batches:
        if transform is None:
            yield batch
            continue
        place = batch.schema.get_field_index("ext")
        encoded = batch.column("ext").dictionary_encode()
        exts = [stored_ext(ext, transform) for ext in encoded.dictionary.to_pylist()]
        column = pa.array(exts, pa.string()).take(encoded.indices)
        yield batch.set_column(place, batch.schema.field(place), column)
