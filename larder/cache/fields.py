"""Which fields the records of a split have, and how samples fill them.

============================  =============================================================
field                         from
============================  =============================================================
``label``                     the label: int64; optional if some samples have none
``EXT`` such as ``json``      the bytes of that part: uint8 (*,); optional if some lack it
``image``                     decoded: the part with the extension of an image, such as ``jpg``
``image.NAME``                decoded: a part such as ``NAME.png``
``EXT``, ``EXT.NAME``         decoded: the arrays that a decoder makes of that part
``key``                       the sample's key in UTF-8: uint8 (*,)
============================  =============================================================

Fields have this order, parts are sorted by name. An extension that could be confused with another
field (``label``, ``key``, ``image``, ``image.*``, ``part.*``) becomes ``part.EXT``. The part
``cls`` is left out if there are labels, because it is the same.

Decoded images and other arrays get the narrowest shape that fits all of a split: a dimension is
open only if it differs. If the split has any colour image, grey values are repeated as red, green
and blue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from larder.cache.schema import KEY, Field, RecordSchema
from larder.errors import FatalError
from larder.samples.decoders import IMAGES_ONLY, Array, Decoders
from larder.samples.images import Form
from larder.samples.naming import LABEL_EXT

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["encoded", "decoded"]
"""Whether images are kept as the bytes of their files or as arrays."""

LABEL = "label"

_IMAGE = "image"
_PART_PREFIX = "part."
_IMAGE_PREFIX = "image."

# The shape before any image was seen; no image has this shape.
_UNSEEN = (0, 0, 1)


def field_name(ext: str, kind: Kind, decoders: Decoders = IMAGES_ONLY) -> str:
    if kind == "decoded" and decoders.is_image(ext):
        stem = ext.rpartition(".")[0]
        return _IMAGE_PREFIX + stem if stem else _IMAGE
    if ext in (LABEL, KEY, _IMAGE) or ext.startswith((_PART_PREFIX, _IMAGE_PREFIX)):
        return _PART_PREFIX + ext
    return ext


def field_names(ext: str, kind: Kind, decoders: Decoders = IMAGES_ONLY) -> tuple[str, ...]:
    """All fields for a part with this extension: one, except of a decoder that has several."""
    name = field_name(ext, kind, decoders)
    decoder = decoders.of(ext) if kind == "decoded" else None
    return decoder.names(name) if decoder else (name,)


def sample_schema(
    batches: Iterable[pa.RecordBatch], kind: Kind, decoders: Decoders = IMAGES_ONLY
) -> RecordSchema:
    """The fields of a split's records, as far as the index says.

    Fields of images and decoders have a shape that nothing fits; `widened` and `widened_by` extend
    it for each image and array.
    """
    samples = labels = 0
    exts: Counter[str] = Counter()
    for batch in batches:
        samples += batch.num_rows
        labels += batch.num_rows - batch.column("label").null_count
        for entry in batch.column("parts").flatten().field("ext").value_counts().to_pylist():
            exts[entry["values"]] += entry["counts"]
    if labels:
        del exts[LABEL_EXT]
    counts: Counter[str] = Counter()
    unseen = set[str]()
    for ext, count in exts.items():
        names = field_names(ext, kind, decoders)
        counts.update(dict.fromkeys(names, count))
        if kind == "decoded" and decoders.decodes(ext):
            unseen.update(names)
    fields = [Field(LABEL, "int64", (), labels < samples)] if labels else []
    for name in sorted(counts):
        shape = _UNSEEN if name in unseen else (None,)
        fields.append(Field(name, "uint8", shape, counts[name] < samples))
    return RecordSchema((*fields, Field(KEY, "uint8", (None,))))


def holds(field: Field, array: Array) -> bool:
    """Whether a field accepts an array of a decoder."""
    return (
        field.dtype == array.dtype.name
        and len(field.shape) == array.ndim
        and all(
            size in (None, length) for size, length in zip(field.shape, array.shape, strict=True)
        )
    )


def fits(field: Field, form: Form) -> bool:
    """Whether a field accepts an image of that form; 8-bit grey also fits colour."""
    height, width, channels = field.shape
    return (
        height in (None, form.height)
        and width in (None, form.width)
        and channels in (form.channels, 3)
        and field.dtype == form.dtype
    )


def widened(schema: RecordSchema, name: str, form: Form, where: str) -> RecordSchema:
    """The narrowest schema that also accepts an image of that form in field ``name``;
    ``cache.schema`` if the previous images have another dtype.
    """
    return RecordSchema(
        tuple(
            _wider(field, form, where) if field.name == name else field for field in schema.fields
        )
    )


def widened_by(schema: RecordSchema, name: str, array: Array, where: str) -> RecordSchema:
    """The narrowest schema that also accepts an array in field ``name``; ``cache.schema`` if the
    previous arrays have another dtype or another number of dimensions.
    """
    field = schema.select([name])[0]
    wider = Field(name, array.dtype.name, array.shape, field.optional)
    if field.shape != _UNSEEN:
        if wider.kind != field.kind:
            message = f"a part that decodes to {wider.kind} follows others of {field.kind}"
            hint = "convert or exclude one of them, or leave it out of decoding"
            raise FatalError("cache.schema", message, where=where, hint=hint)
        both = zip(field.shape, array.shape, strict=True)
        wider = replace(
            wider, shape=tuple(length if length == size else None for length, size in both)
        )
    return RecordSchema(tuple(wider if each.name == name else each for each in schema.fields))


def _wider(field: Field, form: Form, where: str) -> Field:
    if field.shape == _UNSEEN:
        shape: tuple[int | None, ...] = (form.height, form.width, form.channels)
        return replace(field, dtype=form.dtype, shape=shape)
    if field.dtype != form.dtype:
        message = f"an image of {form.dtype} follows images of {field.dtype}"
        raise FatalError(
            "cache.schema", message, where=where, hint="use a cache of encoded records"
        )
    height, width, channels = field.shape
    assert channels is not None, "an image has 1 or 3 channels"
    return replace(
        field,
        shape=(
            height if height == form.height else None,
            width if width == form.width else None,
            max(channels, form.channels),
        ),
    )
