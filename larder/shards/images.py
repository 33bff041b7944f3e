"""Checks whether images and other parts can be decoded, before they go into a shard."""

from __future__ import annotations

import io
from contextlib import nullcontext
from dataclasses import dataclass
from typing import IO, Final, Literal, get_args

from larder.config.shape import MAX_PIXELS, Transform
from larder.errors import ObjectError
from larder.limits import ByteBudget
from larder.samples.decoders import IMAGES_ONLY, Decoders, kind_of
from larder.samples.images import is_image
from larder.samples.pictures import (
    Form,
    decoding,
    discarding,
    form_of,
    load,
    loading_bytes,
    open_image,
)
from larder.shards.transform import encode_again
from larder.shards.transform_pool import TransformPool

Validation = Literal["none", "header", "decode"]
"""How images are checked: not at all, by format and size, or by decoding them. Other parts are only
decoded."""

_STRENGTHS: tuple[str, ...] = get_args(Validation)
"""From the weakest."""

_HINT: Final = "fix or exclude it, or set on_bad_sample: skip"


@dataclass(frozen=True, slots=True)
class ImageRules:
    """What images have to be like, whatever `Validation` says.

    Attributes:
        forms: Whether to say what they decode to, which needs their headers.
        budget: Maximum bytes of decoded images in memory, over all threads that share it; a larger
            image is decoded alone. None for no maximum.
        transform: How images are stored; None to store them as they are.
        pool: Processes that transform them; None to do it in the calling thread.
        decoders: What decodes parts that are not images.
    """

    max_pixels: int = MAX_PIXELS
    forms: bool = False
    budget: ByteBudget | None = None
    transform: Transform | None = None
    pool: TransformPool | None = None
    decoders: Decoders = IMAGES_ONLY


PLAIN: Final = ImageRules()
"""The rules by default."""


def is_weaker(before: str, now: str) -> bool:
    """Whether images that were checked as ``before`` have to be checked again."""
    return _STRENGTHS.index(before) < _STRENGTHS.index(now)


def check_image(
    ext: str,
    data: bytes | IO[bytes],
    mode: Validation,
    *,
    where: str,
    rules: ImageRules = PLAIN,
) -> Form | None:
    """Check a part of a sample; a part that is no image is accepted.

    ``header`` finds files that are not images, and images truncated within the header. ``decode``
    decodes the first frame, and finds truncated images and others that training could not decode,
    or that Pillow decodes to other values. Images with too many pixels are refused in both ways,
    before they are decoded. With ``rules.forms``, ``none`` reads the header too, and what the image
    decodes to is returned.

    Raises:
        ObjectError: ``sample.undecodable``.
    """
    if (mode == "none" and not rules.forms) or not rules.decoders.is_image(ext):
        return None
    if not data:
        raise _empty(where)
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    # Opening an image refuses one without a width, a height or a mode.
    with decoding(where, _HINT), open_image(file, rules.max_pixels) as image:
        form = form_of(image) if rules.forms or mode == "decode" else None
        if mode == "decode":
            budget = rules.budget
            held = budget.holding(loading_bytes(image)) if budget else nullcontext()
            with held, discarding(image):
                load(image)
        return form if rules.forms else None


def check_decodable(
    ext: str,
    data: bytes | IO[bytes],
    mode: Validation,
    *,
    where: str,
    rules: ImageRules = PLAIN,
) -> Form | str | None:
    """Check a part of a sample; one that is neither an image nor has a decoder is accepted.

    Images are checked as by `check_image`. Of other parts, ``decode`` finds those that their
    decoder does not decode; ``header`` finds nothing. With ``rules.forms``, others than images are
    always decoded, and the form of an image or the types of other arrays are returned.

    Raises:
        ObjectError: ``sample.undecodable``.
        FatalError: ``cache.schema``: a decoder does not return arrays.
    """
    if mode == "none" and not rules.forms:
        return None
    if not rules.decoders.uses or rules.decoders.is_image(ext):
        return check_image(ext, data, mode, where=where, rules=rules)
    decoder = rules.decoders.of(ext)
    if decoder is None or (mode != "decode" and not rules.forms):
        return None
    length = len(data) if isinstance(data, bytes) else data.seek(0, io.SEEK_END)
    budget, needed_bytes = rules.budget, decoder.needed_bytes(length)
    with budget.holding(needed_bytes) if budget else nullcontext():
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        found = kind_of(decoder.decode(data, where, _HINT))
    return found if rules.forms else None


def stored_image(
    ext: str, data: bytes | IO[bytes], *, where: str, rules: ImageRules
) -> bytes | None:
    """An image as ``rules.transform`` stores it, which also checks that it can be decoded.

    None if the part is stored as it is.

    Raises:
        ObjectError: ``sample.undecodable``.
        FatalError: ``run.failed``: a process that transforms images was killed.
    """
    transform, most = rules.transform, rules.max_pixels
    if transform is None or not is_image(ext):
        return None
    if not data:
        raise _empty(where)
    if rules.pool is None or not isinstance(data, bytes):
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        budget = rules.budget
        return encode_again(ext, file, transform, where=where, max_pixels=most, budget=budget)
    with decoding(where, _HINT), open_image(io.BytesIO(data), most) as image:
        needed_bytes = 2 * loading_bytes(image)
    with rules.budget.holding(needed_bytes) if rules.budget else nullcontext():
        return rules.pool.encode_again(ext, data, transform, where=where, max_pixels=most)


def _empty(where: str) -> ObjectError:
    message = "the image cannot be decoded: the file is empty"
    return ObjectError("sample.undecodable", message, where=where, hint=_HINT)
