"""Makes the records of a cache from the samples of shards.

Every shard is read once, from front to back, in the order of the samples. Images are decoded by a
few threads, within a bound on the bytes that wait. The shape of a split's images is known only when
all have been read. So the shape of the first is assumed, and the build starts again with a wider
one if an image does not fit: with mixed sizes this happens at the second or third image, and with a
single size the images are read once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from larder.cache.build import build_file
from larder.cache.fields import (
    KEY,
    LABEL,
    Kind,
    field_name,
    fits,
    sample_schema,
    widened,
)
from larder.cache.images import Picture, open_picture
from larder.cache.layout import CacheFileFacts
from larder.cache.record import Value
from larder.cache.schema import Field, Schema
from larder.cache.window import Making, in_order
from larder.config.images import MAX_PIXELS
from larder.errors import FatalError
from larder.limits import ByteBudget
from larder.progress import NullProgress, Progress
from larder.samples.images import is_image
from larder.samples.indexed import IndexedSample, SampleReader, part_place, read_index

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["STAGE", "Misfit", "Samples", "build_samples", "sample_records"]

STAGE: Final = "cache"
"""The stage whose progress is reported: counts records, and the bytes of their parts."""

WINDOW_BYTES: Final = 64 * 1024**2


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one split, and where their shards are.

    Attributes:
        rows: Returns the record batches of `larder.manifest.schemas.SAMPLES`, in the order of their
            ids, from the beginning at every call.
        open_shard: Opens the shard with a name, in any format.
    """

    rows: Callable[[], Iterable[pa.RecordBatch]]
    open_shard: Callable[[str], SampleReader]


class Misfit(Exception):  # noqa: N818 - not an error: the build starts again
    """An image does not fit the schema; ``schema`` is a wider one that it fits."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self.schema = schema


def build_samples(
    samples: Samples,
    kind: Kind,
    path: Path,
    *,
    limit_bytes: int | None,
    reserve_bytes: int = 0,
    threads: int | None = None,
    budget: ByteBudget | None = None,
    max_pixels: int = MAX_PIXELS,
    progress: Progress | None = None,
) -> CacheFileFacts:
    """Build the cache file of one split. Memory is that of ``budget`` and of `build_file`.

    Args:
        samples: The samples.
        kind: Whether images are decoded.
        path: The file; see `build_file`.
        limit_bytes: The budget of the file; see `build_file`.
        reserve_bytes: Bytes of the disk that must remain free; see `build_file`.
        threads: Images decoded at once; one per core if None.
        budget: Maximum bytes of images in progress, encoded and decoded, over all files that share
            it; a larger image is decoded alone. 64 MiB for this file if None.
        max_pixels: The maximum number of pixels of an image.
        progress: Advances `STAGE`; the caller, who knows all splits, starts and finishes it.

    Raises:
        ObjectError: ``sample.undecodable``, naming shard and sample.
        DamageError: ``damage.record``, ``damage.size``: a shard differs from its index.
        FatalError: ``run.endless``: the budget is exceeded; ``cache.schema``: two images of one
            sample would become the same field, or images of a split differ in dtype.
        LarderError: Any error of the store.
    """
    told = _Told(progress or NullProgress())
    schema = sample_schema(samples.rows(), kind)
    while True:
        made = sample_records(
            samples,
            schema,
            kind,
            threads=threads,
            budget=budget,
            max_pixels=max_pixels,
            told=told.advance,
        )
        try:
            with closing(made) as records:
                return build_file(
                    records, schema, path, limit_bytes=limit_bytes, reserve_bytes=reserve_bytes
                )
        except Misfit as misfit:
            schema = misfit.schema
            told.begin_again()


def sample_records(
    samples: Samples,
    schema: Schema,
    kind: Kind,
    *,
    threads: int | None = None,
    budget: ByteBudget | None = None,
    max_pixels: int = MAX_PIXELS,
    told: Callable[[int], None] = lambda source_bytes: None,
) -> Generator[Mapping[str, Value]]:
    """The values of every sample's record, in order.

    Args:
        samples: The samples.
        schema: From `larder.cache.fields.sample_schema`, or from a `Misfit`.
        kind: The kind of the schema.
        threads: See `build_samples`.
        budget: See `build_samples`.
        max_pixels: See `build_samples`.
        told: Called for every record with the bytes of its parts.

    Raises:
        Misfit: An image does not fit the schema.
        LarderError: See `build_samples`.
    """
    bound = budget or ByteBudget(WINDOW_BYTES)
    with (
        closing(_records(samples, schema, kind, max_pixels)) as records,
        closing(in_order(records, threads or os.cpu_count() or 1, bound)) as made,
    ):
        for record in made:
            told(record.source_bytes)
            yield record.result()


def _records(samples: Samples, schema: Schema, kind: Kind, max_pixels: int) -> Generator[Making]:
    fields = {field.name: field for field in schema.fields}
    for shard, group in groupby(read_index(samples.rows()), key=lambda sample: sample.shard):
        with samples.open_shard(shard) as reader:
            for sample in group:
                yield _record(sample, reader, schema, fields, kind, max_pixels)


def _record(
    sample: IndexedSample,
    shard: SampleReader,
    schema: Schema,
    fields: Mapping[str, Field],
    kind: Kind,
    max_pixels: int,
) -> Making:
    record = Making()
    record.values[KEY] = sample.key.encode()
    if LABEL in fields:
        record.values[LABEL] = sample.label
    names = {part.ext: field_name(part.ext, kind) for part in sample.parts}
    wanted = [part for part in sample.parts if names[part.ext] in fields]
    for ext, data in shard.read(sample, wanted).items():
        name = names[ext]
        if name in record.values or name in record.pictures:
            message = f"another part of the sample also becomes the field {name!r}"
            where, hint = part_place(shard.url, sample, ext), "use a cache of encoded records"
            raise FatalError("cache.schema", message, where=where, hint=hint)
        record.source_bytes += len(data)
        if kind == "decoded" and is_image(ext):
            where = part_place(shard.url, sample, ext)
            record.pictures[name] = _picture(data, schema, fields[name], where, max_pixels)
        else:
            record.values[name] = data
    return record


def _picture(
    data: bytes, schema: Schema, field: Field, where: str, max_pixels: int
) -> tuple[Picture, int]:
    picture = open_picture(data, where, max_pixels=max_pixels)
    if not fits(field, picture.form):
        raise Misfit(widened(schema, field.name, picture.form, where))
    channels = field.shape[2]
    assert channels is not None, "an image has 1 or 3 channels"
    return picture, channels


class _Told:
    """Progress that does not go back when a build starts again."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._most = 0
        self._count = 0

    def advance(self, source_bytes: int) -> None:
        """Report a record, unless an earlier build reported it already."""
        self._count += 1
        if self._count > self._most:
            self._most = self._count
            self._progress.advance(STAGE, objects=1, bytes=source_bytes)

    def begin_again(self) -> None:
        """Start counting again, without reporting anything twice."""
        self._count = 0
