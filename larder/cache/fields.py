"""Which fields the records of a split have, and how samples fill them.

============================  =============================================================
field                         from
============================  =============================================================
``label``                     the label: int64; optional if some samples have none
``EXT`` such as ``json``      the bytes of that part: uint8 (*,); optional if some lack it
``image``                     decoded: the part with the extension of an image, such as ``jpg``
``image.NAME``                decoded: a part such as ``NAME.png``
``key``                       the sample's key in UTF-8: uint8 (*,)
============================  =============================================================

Fields have this order, parts are sorted by name. An extension that could be confused with another
field (``label``, ``key``, ``image``, ``image.*``, ``part.*``) becomes ``part.EXT``. The part
``cls`` is left out if there are labels, because it is the same.

Decoded images get the narrowest shape that fits all images of a split: a dimension is open only if
it differs. If the split has any colour image, grey values are repeated as red, green and blue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from larder.cache.images import Form
from larder.cache.schema import Field, Schema
from larder.errors import FatalError
from larder.samples.grouping import LABEL_EXT
from larder.samples.images import is_image

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = [
    "KEY",
    "LABEL",
    "Kind",
    "field_name",
    "fits",
    "sample_schema",
    "widened",
]

Kind = Literal["encoded", "decoded"]
"""Whether images are kept as the bytes of their files or as arrays."""

LABEL, KEY = "label", "key"

_IMAGE = "image"
_PART_PREFIX = "part."
_IMAGE_PREFIX = "image."

# The shape before any image was seen; no image has this shape.
_UNSEEN = (0, 0, 1)


def field_name(ext: str, kind: Kind) -> str:
    """The field for a part with this extension."""
    if kind == "decoded" and is_image(ext):
        stem = ext.rpartition(".")[0]
        return _IMAGE_PREFIX + stem if stem else _IMAGE
    if ext in (LABEL, KEY, _IMAGE) or ext.startswith((_PART_PREFIX, _IMAGE_PREFIX)):
        return _PART_PREFIX + ext
    return ext


def sample_schema(batches: Iterable[pa.RecordBatch], kind: Kind) -> Schema:
    """The fields of a split's records, as far as the index says.

    Image fields have a shape that no image fits; `widened` extends it for each image.

    Args:
        batches: All rows of the split, of `larder.manifest.schemas.SAMPLES`.
        kind: Whether images are decoded.
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
    for ext, count in exts.items():
        counts[field_name(ext, kind)] += count
    images = {field_name(ext, kind) for ext in exts if kind == "decoded" and is_image(ext)}
    fields = [Field(LABEL, "int64", (), labels < samples)] if labels else []
    for name in sorted(counts):
        shape = _UNSEEN if name in images else (None,)
        fields.append(Field(name, "uint8", shape, counts[name] < samples))
    return Schema((*fields, Field(KEY, "uint8", (None,))))


def fits(field: Field, form: Form) -> bool:
    """Whether a field accepts an image of that form; 8-bit grey also fits colour."""
    height, width, channels = field.shape
    return (
        height in (None, form.height)
        and width in (None, form.width)
        and channels in (form.channels, 3)
        and field.dtype == form.dtype
    )


def widened(schema: Schema, name: str, form: Form, where: str) -> Schema:
    """The narrowest schema that also accepts an image of that form in field ``name``.

    Args:
        schema: The schema that accepts the previous images.
        name: An image field.
        form: The form of the image.
        where: The image's shard and sample, for errors.

    Raises:
        FatalError: ``cache.schema``: the previous images have another dtype.
    """
    return Schema(
        tuple(
            _wider(field, form, where) if field.name == name else field for field in schema.fields
        )
    )


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
