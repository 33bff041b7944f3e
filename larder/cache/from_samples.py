"""Make the records of a cache from the samples of shards, alone or by a user's function.

Every shard is read once, from front to back, in the order of the samples. A few threads decode the
parts, within a bound on the waiting bytes. The shape of a split's images and other arrays is known
only when all have been read. So the build assumes the shape of the first array, and starts again
with a wider shape if an array does not fit. With mixed sizes this happens at the second or third
array; with a single size the parts are read once.

A user's function yields an element for each sample. An element becomes a record: a dictionary has a
field for each key, a tuple for each place, any other element the field ``value``. The field ``key``
is the key of the sample.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from larder.budgets import ByteBudget
from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import Array, Buffer, CacheFileFacts, Codec
from larder.cache.decoding import HINT, Making, OpenedImage, ToDecode, in_order
from larder.cache.fields import LABEL, Kind, field_names, fits, image_shape, sample_schema, widened
from larder.cache.schema import DTYPES, KEY, Field, RecordSchema
from larder.config.shape import MAX_PIXELS, ImageShape
from larder.errors import FatalError
from larder.machine import usable_cores
from larder.progress import Progress
from larder.samples.decoders import IMAGES_ONLY, Bound, Builder, Decoders
from larder.samples.image_parts import decoding
from larder.samples.indexed import IndexedSample, Sample, SampleReader, part_place, read_index

if TYPE_CHECKING:
    import pyarrow as pa

STAGE: Final = "cache"
"""The stage whose progress is reported: counts records, and the bytes of their parts."""

WINDOW_BYTES: Final = 64 * 1024**2

_HINT: Final = "correct cache.builder, or cache.builder_inputs"
_END: Final = object()
_VALUE: Final = "value"


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
    place: str = "",
    reserve_bytes: int = 0,
    budget: ByteBudget | None = None,
    schema: RecordSchema | None = None,
    encode: Encode | None = None,
    progress: Progress | None = None,
) -> CacheFileFacts:
    """Build the cache file of one split, with the memory of ``budget`` and of `build_file`.

    ``budget`` bounds the bytes of parts in progress, encoded and decoded, over all files that share
    the budget; a larger part is decoded alone. None means 64 MiB for this file. ``encode`` makes
    the records elsewhere. The build begins with ``schema``, if given. The caller starts and
    finishes stage `STAGE`, because only the caller knows all splits.
    """
    schema = schema or sample_schema(samples.rows(), samples.kind, samples.decoders)
    encode = encode or partial(encoded_records, samples, place=place, budget=budget)
    reported = 0

    def records(made: Iterable[EncodedRecord]) -> Iterator[Buffer]:
        nonlocal reported
        number = 0
        for record, source_bytes in made:
            number += 1  # noqa: SIM113 - enumerate would hold the record
            if number > reported and progress:  # else an earlier attempt has reported it
                reported = number
                progress.advance(STAGE, objects=1, bytes=source_bytes)
            yield record
            del record  # it may be large, and the next record is made now

    while True:
        try:
            with closing(encode(schema)) as made:
                return build_file(
                    records(made), schema, path, place=place, reserve_bytes=reserve_bytes
                )
        except Misfit as misfit:
            schema = misfit.schema


def encoded_records(
    samples: CacheInput,
    schema: RecordSchema,
    place: str,
    *,
    first_number: int = 0,
    budget: ByteBudget | None = None,
) -> Generator[EncodedRecord]:
    """Yield the record of every sample, in order; raise `Misfit` if one does not fit the schema."""
    codec = Codec(schema, place)
    bound = budget or ByteBudget(WINDOW_BYTES)
    fields = {field.name: field for field in schema.fields}
    with (
        closing(_records(samples, schema)) as records,
        closing(in_order(records, usable_cores(), bound)) as made,
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
            picture = OpenedImage(
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


def built_schema(samples: CacheInput, builder: Builder) -> RecordSchema:
    """Return the fields of the first record."""
    with closing(_built(samples, builder, (0, 1))) as built:
        _, values = next(built)
    fields = [Field(name, array.dtype.name, array.shape) for name, array in values.items()]
    return RecordSchema((*fields, Field(KEY, "uint8", (None,))))


def built_records(
    samples: CacheInput,
    builder: Builder,
    schema: RecordSchema,
    place: str,
    *,
    first_number: int = 0,
    shard: tuple[int, int] = (0, 1),
) -> Generator[EncodedRecord]:
    """Yield the record of every sample, in order; raise `Misfit` if one does not fit the schema.

    ``shard`` is the number of the samples' shard, and the number of shards in the split.
    """
    codec, fields = Codec(schema, place), {field.name: field for field in schema.fields}
    with closing(_built(samples, builder, shard)) as built:
        for number, (sample, values) in enumerate(built, first_number):
            where = _place(sample)
            if values.keys() != fields.keys() - {KEY}:
                raise _refused("its element has other fields than the first", where)
            for name, array in values.items():
                given = array.dtype.name, array.shape
                if not fits(fields[name], *given):
                    raise Misfit(widened(schema, name, *given, where, decoded=False))
            record = codec.encode({KEY: sample.key.encode(), **values}, number)
            yield EncodedRecord(record, sample.length)


def _built(
    samples: CacheInput, builder: Builder, shard: tuple[int, int]
) -> Generator[tuple[IndexedSample, dict[str, Array]]]:
    what = f"{builder.name} fails"
    where = builder.name
    with decoding(where, _HINT, what):
        elements = builder.elements(_samples(samples), shard)
    for sample in read_index(samples.rows()):
        where = _place(sample)
        with decoding(where, _HINT, what):
            element = next(elements, _END)
        if element is _END:
            raise _refused(f"{builder.name} yields no element for it, nor for the rest", where)
        fields = [*_fields(element, "", where)]
        if len(values := dict(fields)) < len(fields):
            raise _refused(f"two fields of its element have one name: {[*values]}", where)
        yield sample, {name: values[name] for name in sorted(values)}
    with decoding(where, _HINT, what):
        if next(elements, _END) is not _END:
            raise _refused(f"{builder.name} yields more elements than samples", where)


def _samples(samples: CacheInput) -> Iterator[Sample]:
    for shard, group in groupby(read_index(samples.rows()), key=lambda sample: sample.shard):
        with samples.open_shard(shard) as reader:
            for sample in group:
                yield Sample(sample.key, sample.label, reader.read(sample))


def _fields(element: Any, prefix: str, where: str) -> Iterator[tuple[str, Array]]:
    if isinstance(element, tuple):
        element = dict(enumerate(element))
    if isinstance(element, Mapping):
        for key, value in element.items():
            yield from _fields(value, f"{prefix}.{key}" if prefix else str(key), where)
        return
    name = prefix or _VALUE
    if name == KEY:
        raise _refused(f"the field {KEY!r} is that of the sample's key", where)
    if isinstance(element, str | bytes):
        raw = element.encode() if isinstance(element, str) else element
        yield name, np.frombuffer(raw, np.uint8)
        return
    if isinstance(element, np.ma.MaskedArray):
        raise _refused(f"the field {name!r} is a masked array, and a cache has no masks", where)
    array = np.asarray(element)
    if array.dtype.name not in DTYPES:
        message = f"the field {name!r} is {array.dtype}, which no cache can hold"
        raise _refused(message, where)
    yield name, array


def _place(sample: IndexedSample) -> str:
    return f"{sample.shard}: {sample.key}"


def _refused(message: str, where: str) -> FatalError:
    return FatalError("cache.schema", message, where=where, hint=_HINT)
