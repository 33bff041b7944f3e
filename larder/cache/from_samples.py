"""Make the records of a cache from the samples of shards.

Every shard is read once, from front to back, in the order of the samples. A few threads decode the
parts, within a bound on the waiting bytes. The shape of a split's images and other arrays is known
only when all have been read. So the build assumes the shape of the first array, and starts again
with a wider shape if an array does not fit. With mixed sizes this happens at the second or third
array; with a single size the parts are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from larder.budgets import ByteBudget
from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import Array, Buffer, CacheFileFacts, Codec
from larder.cache.decoding import HINT, Making, OpenedImage, ToDecode, in_order, open_picture
from larder.cache.fields import (
    LABEL,
    Kind,
    field_names,
    fits,
    image_shape,
    sample_schema,
    widened,
)
from larder.cache.schema import KEY, Field, RecordSchema
from larder.config.shape import MAX_PIXELS, ImageShape
from larder.errors import FatalError
from larder.machine import usable_cores
from larder.progress import NullProgress, Progress
from larder.samples.decoders import IMAGES_ONLY, Bound, Decoders
from larder.samples.indexed import IndexedSample, SampleReader, part_place, read_index

if TYPE_CHECKING:
    import pyarrow as pa

STAGE: Final = "cache"
"""The stage whose progress is reported: counts records, and the bytes of their parts."""

WINDOW_BYTES: Final = 64 * 1024**2


class CacheInput(NamedTuple):
    """Samples of one split, and the options for making records.

    ``rows`` returns batches of `larder.manifest.schemas.INDEXED`, from the beginning at every call.
    """

    rows: Callable[[], Iterable[pa.RecordBatch]]
    open_shard: Callable[[str], SampleReader]
    kind: Kind
    max_pixels: int = MAX_PIXELS
    decoders: Decoders = IMAGES_ONLY
    shape: ImageShape | None = None


class EncodedRecord(NamedTuple):
    """A record, and the size of the parts that it was made from."""

    record: Buffer
    source_bytes: int


Encode = Callable[[RecordSchema], Generator[EncodedRecord]]
"""A function that makes the records of a split by a schema, like `encoded_records`."""


class Misfit(Exception):  # noqa: N818 - not an error: the build starts again
    """An image or array does not fit the schema; ``schema`` is a wider one that it fits."""

    def __init__(self, schema: RecordSchema) -> None:
        super().__init__(schema)
        self.schema = schema


def build_samples(
    samples: CacheInput,
    path: Path,
    *,
    limit_bytes: int | None,
    place: str = "",
    reserve_bytes: int = 0,
    threads: int | None = None,
    budget: ByteBudget | None = None,
    schema: RecordSchema | None = None,
    encode: Encode | None = None,
    progress: Progress | None = None,
) -> CacheFileFacts:
    """Build the cache file of one split, with the memory of ``budget`` and of `build_file`.

    ``budget`` bounds the bytes of parts in progress, encoded and decoded, over all files that share
    the budget; a larger part is decoded alone. None means 64 MiB for this file. ``threads`` is the
    number of parts decoded at once; one per core if None. ``encode`` makes the records elsewhere.
    The build begins with ``schema``, if given. The caller starts and finishes stage `STAGE`,
    because only the caller knows all splits.

    Errors: ``sample.undecodable`` names shard and sample; ``run.endless``: the file would exceed
    ``limit_bytes``. ``cache.schema``: two parts of one sample would become the same field, or
    parts of a field differ in dtype or, except for images, in the number of dimensions.
    """
    reported = _SteadyProgress(progress or NullProgress())
    schema = schema or sample_schema(samples.rows(), samples.kind, samples.decoders)
    while True:
        made = (
            encode(schema)
            if encode
            else encoded_records(samples, schema, place, threads=threads, budget=budget)
        )
        try:
            with closing(made):
                return build_file(
                    reported.each(made),
                    schema,
                    path,
                    limit_bytes=limit_bytes,
                    place=place,
                    reserve_bytes=reserve_bytes,
                )
        except Misfit as misfit:
            schema = misfit.schema
            reported.begin_again()


def encoded_records(
    samples: CacheInput,
    schema: RecordSchema,
    place: str,
    *,
    first_number: int = 0,
    threads: int | None = None,
    budget: ByteBudget | None = None,
) -> Generator[EncodedRecord]:
    """Yield the record of every sample, in order; raise `Misfit` if one does not fit the schema."""
    codec = Codec(schema, place)
    bound = budget or ByteBudget(WINDOW_BYTES)
    fields = {field.name: field for field in schema.fields}
    with (
        closing(_records(samples, schema)) as records,
        closing(in_order(records, threads or usable_cores(), bound)) as made,
    ):
        for number, record in enumerate(made, first_number):
            for name, array, where in record.decoded():
                if not fits(fields[name], array.dtype.name, array.shape):
                    raise Misfit(widened(schema, name, array.dtype.name, array.shape, where))
                record.values[name] = array
            yield EncodedRecord(codec.encode(record.values, number), record.source_bytes)


def _records(samples: CacheInput, schema: RecordSchema) -> Generator[Making]:
    fields = {field.name: field for field in schema.fields}
    for shard, group in groupby(read_index(samples.rows()), key=lambda sample: sample.shard):
        with samples.open_shard(shard) as reader:
            for sample in group:
                yield _record(samples, sample, reader, schema, fields)


def _record(
    samples: CacheInput,
    sample: IndexedSample,
    shard: SampleReader,
    schema: RecordSchema,
    fields: Mapping[str, Field],
) -> Making:
    record = Making()
    record.values[KEY] = sample.key.encode()
    if LABEL in fields:
        record.values[LABEL] = sample.label
    kind, decoders = samples.kind, samples.decoders
    names = {part.ext: field_names(part.ext, kind, decoders) for part in sample.parts}
    wanted = [part for part in sample.parts if names[part.ext][0] in fields]
    taken = set(record.values)
    for ext, data in shard.read(sample, wanted).items():
        if again := taken.intersection(names[ext]):
            message = f"another part of the sample also becomes the field {min(again)!r}"
            where, hint = part_place(shard.url, sample, ext), "use a cache of encoded records"
            raise FatalError("cache.schema", message, where=where, hint=hint)
        taken.update(names[ext])
        record.source_bytes += len(data)
        name, where = names[ext][0], part_place(shard.url, sample, ext)
        if kind == "decoded" and decoders.is_image(ext):
            picture = open_picture(
                data,
                where,
                max_pixels=samples.max_pixels,
                mask=decoders.is_mask(ext),
                shape=samples.shape,
            )
            record.parts.append(_picture(picture, schema, fields[name], where))
        elif kind == "decoded" and (decoder := decoders.of(ext)):
            decode = partial(_arrays, decoder, names[ext], data, where)
            record.parts.append(ToDecode(where, decoder.needed_bytes(len(data)), decode))
        else:
            record.values[name] = data
    return record


def _picture(picture: OpenedImage, schema: RecordSchema, field: Field, where: str) -> ToDecode:
    form, shape = picture.form, image_shape(picture.form, field)
    if not fits(field, form.dtype, shape):
        raise Misfit(widened(schema, field.name, form.dtype, shape, where))
    needed_bytes = form.bytes + picture.loading_bytes
    return ToDecode(where, needed_bytes, lambda: {field.name: picture.array(shape[2])})


def _arrays(decoder: Bound, names: Sequence[str], data: bytes, where: str) -> Mapping[str, Array]:
    return dict(zip(names, decoder.decode(data, where, HINT).values(), strict=True))


class _SteadyProgress:
    """A progress that does not go back when a build starts again."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._most = 0
        self._count = 0

    def each(self, records: Iterable[EncodedRecord]) -> Iterator[Buffer]:
        """Yield the records; report each record unless an earlier build has."""
        for record, source_bytes in records:
            self._count += 1
            if self._count > self._most:
                self._most = self._count
                self._progress.advance(STAGE, objects=1, bytes=source_bytes)
            yield record
            del record

    def begin_again(self) -> None:
        """Start counting again, without reporting a record twice."""
        self._count = 0
