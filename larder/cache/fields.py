"""Fields of a split's records, and the parts that fill them.

============================  =============================================================
field                         from
============================  =============================================================
``label``                     the label: int64; optional if some samples have none
``EXT`` such as ``json``      the bytes of that part: uint8 (*,); optional if some lack it
``image``                     decoded: the part with the extension of an image, such as ``jpg``
``image.NAME``                decoded: a part such as ``NAME.png``
``mask``                      decoded: a part such as ``png`` that is a mask
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
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from larder.cache.schema import KEY, Field, RecordSchema
from larder.errors import FatalError
from larder.samples.decoders import IMAGES_ONLY, Decoders
from larder.samples.image_parts import Form
from larder.samples.naming import LABEL_EXT

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["encoded", "decoded"]
"""Form of images in records: the bytes of their files, or arrays."""

LABEL = "label"

_IMAGE, _MASK = "image", "mask"
_PART_PREFIX = "part."
_IMAGE_PREFIX = "image."

# The shape before any image was seen; no image has this shape.
_UNSEEN = (0, 0, 1)


def field_name(ext: str, kind: Kind, decoders: Decoders = IMAGES_ONLY) -> str:
    if kind == "decoded" and decoders.is_image(ext):
        stem = ext.rpartition(".")[0]
        return _IMAGE_PREFIX + stem if stem else _MASK if decoders.is_mask(ext) else _IMAGE
    if ext in (LABEL, KEY, _IMAGE) or ext.startswith((_PART_PREFIX, _IMAGE_PREFIX)):
        return _PART_PREFIX + ext
    return ext


def field_names(ext: str, kind: Kind, decoders: Decoders = IMAGES_ONLY) -> tuple[str, ...]:
    """Return all fields of a part with this extension: one, unless its decoder has several."""
    name = field_name(ext, kind, decoders)
    decoder = decoders.of(ext) if kind == "decoded" else None
    return decoder.names(name) if decoder else (name,)


def sample_schema(
    batches: Iterable[pa.RecordBatch], kind: Kind, decoders: Decoders = IMAGES_ONLY
) -> RecordSchema:
    """Return the fields of a split's records; `widened` extends the shapes of decoded fields."""
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


def fits(field: Field, dtype: str, shape: Sequence[int]) -> bool:
    """Whether a field accepts an array of this type and shape."""
    return (
        field.dtype == dtype
        and len(field.shape) == len(shape)
        and all(size in (None, length) for size, length in zip(field.shape, shape, strict=True))
    )


def widened(
    schema: RecordSchema,
    name: str,
    dtype: str,
    shape: tuple[int, ...],
    where: str,
    *,
    decoded: bool = True,
) -> RecordSchema:
    """Return the narrowest schema that also accepts this array in field ``name``.

    If arrays were ``decoded``, all images of a field get the same number of channels.
    ``cache.schema``: earlier arrays have another dtype or number of dimensions.
    """
    (field,) = schema.select([name])
    wider = replace(field, dtype=dtype, shape=shape)
    if field.shape != _UNSEEN:
        if wider.kind != field.kind:
            message = f"{wider.kind} in the field {name!r} follows others of {field.kind}"
            hint = "convert or exclude one of them, or use a cache of encoded records"
            raise FatalError("cache.schema", message, where=where, hint=hint)
        both = zip(field.shape, shape, strict=True)
        sizes = [length if length == size else None for size, length in both]
        if decoded and _is_image(name):
            sizes[-1] = shape[-1]
        wider = replace(wider, shape=tuple(sizes))
    return RecordSchema(tuple(wider if each.name == name else each for each in schema.fields))


def image_shape(form: Form, field: Field) -> tuple[int, int, int]:
    """Return the shape of an image in a field: 8-bit grey becomes colour in a colour field."""
    channels = field.shape[2]
    assert channels is not None, "an image has 1 or 3 channels"
    return form.height, form.width, max(form.channels, channels)


def _is_image(name: str) -> bool:
    return name in (_IMAGE, _MASK) or name.startswith(_IMAGE_PREFIX)
