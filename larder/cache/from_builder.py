"""Make the records of a cache from a user's function, which yields an element for each sample.

An element becomes a record: a dictionary has a field for each key, a tuple for each place, any
other element the field ``value``. The field ``key`` is the key of the sample.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from itertools import groupby
from typing import Any, Final

import numpy as np

from larder.cache.cache_record import Array, Codec
from larder.cache.fields import fits, widened
from larder.cache.from_samples import CacheInput, EncodedRecord, Misfit
from larder.cache.schema import DTYPES, KEY, Field, RecordSchema
from larder.errors import FatalError
from larder.samples.builders import Builder
from larder.samples.image_parts import decoding
from larder.samples.indexed import IndexedSample, Sample, read_index

_HINT: Final = "correct cache.builder, or cache.builder_inputs"
_END: Final = object()
_VALUE: Final = "value"


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
    """Yield each sample with the arrays of its element."""
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
