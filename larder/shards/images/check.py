"""Check that images and other parts can be decoded, before they go into a shard.

A few notes in the shard's receipt describe the types of the decoded arrays.
"""

from __future__ import annotations

import io
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, Final, Literal, NamedTuple

from larder.budgets import ByteBudget
from larder.config.shape import MAX_PIXELS, Transform
from larder.jobs.processes import ProcessPool
from larder.samples.decoders import IMAGES_ONLY, Decoders, kind_of
from larder.samples.image_parts import (
    Form,
    decoding,
    discarding,
    form_of,
    is_image,
    load,
    loading_bytes,
    open_image,
)
from larder.shards.images.transform import encode_again, transform_bytes

Validation = Literal["none", "header", "decode"]
"""Checks of images: none, of format and size, or by decoding. Other parts are only checked by
decoding."""

_HINT: Final = "fix or exclude it, or set on_bad_sample: skip"


class ImageRules(NamedTuple):
    """Rules for checking and storing images.

    Attributes:
        skip: Whether samples that cannot be decoded are left out, so that no hint is needed.
        forms: Whether to return the types of decoded arrays, which needs the headers.
        budget: Maximum bytes of decoded images in memory, over all threads that share the budget; a
            larger image is decoded alone. None for no maximum.
        pool: Processes that transform images; None for the calling thread.
    """

    validate: Validation = "header"
    skip: bool = False
    max_pixels: int = MAX_PIXELS
    forms: bool = False
    budget: ByteBudget | None = None
    transform: Transform | None = None
    pool: ProcessPool | None = None
    decoders: Decoders = IMAGES_ONLY


PLAIN: Final = ImageRules()
"""The default rules."""


def check_decodable(
    ext: str,
    data: bytes | IO[bytes],
    mode: Validation,
    *,
    where: str,
    rules: ImageRules = PLAIN,
) -> Form | str | None:
    """Check a part of a sample; accept a part that is not an image and has no decoder.

    ``header`` finds files that are not images, and images truncated within the header. ``decode``
    decodes the first frame, and finds truncated images and others that training could not decode,
    or that Pillow decodes to other values. Both refuse images with too many pixels before decoding.
    Among other parts, ``decode`` finds parts that their decoder refuses; ``header`` finds nothing.

    With ``rules.forms``, ``none`` reads the header too, parts that are not images are always
    decoded, and the form of an image or the types of other arrays are returned.
    """
    if mode == "none" and not rules.forms:
        return None
    if rules.decoders.is_image(ext):
        return _check_image(ext, data, mode, where, rules)
    decoder = rules.decoders.of(ext)
    if decoder is None or (mode != "decode" and not rules.forms):
        return None
    length = len(data) if isinstance(data, bytes) else data.seek(0, io.SEEK_END)
    budget, needed_bytes = rules.budget, decoder.needed_bytes(length)
    with budget.holding(needed_bytes) if budget else nullcontext():
        if not isinstance(data, bytes):
            data.seek(0)
            data = data.read()
        kind = kind_of(decoder.decode(data, where, _HINT))
    return kind if rules.forms else None


def _check_image(
    ext: str, data: bytes | IO[bytes], mode: Validation, where: str, rules: ImageRules
) -> Form | None:
    # Opening an image refuses one without a width, a height or a mode.
    with decoding(where, _HINT), open_image(data, rules.max_pixels) as image:
        mask = rules.decoders.is_mask(ext)
        form = form_of(image, mask=mask) if rules.forms or mode == "decode" else None
        if mode == "decode":
            budget = rules.budget
            reservation = budget.holding(loading_bytes(image)) if budget else nullcontext()
            with reservation, discarding(image):
                load(image)
        return form if rules.forms else None


def stored_image(
    ext: str, data: bytes | IO[bytes], *, where: str, rules: ImageRules
) -> bytes | None:
    """Transform an image by ``rules.transform``; None if the part is stored unchanged.

    The transform also checks that the image can be decoded.
    """
    transform, most = rules.transform, rules.max_pixels
    if transform is None or not is_image(ext):
        return None
    if rules.pool is None or not isinstance(data, bytes):
        budget = rules.budget
        return encode_again(ext, data, transform, where=where, max_pixels=most, budget=budget)
    with decoding(where, _HINT), open_image(data, most) as image:
        needed_bytes = transform_bytes(image, transform)
    with rules.budget.holding(needed_bytes) if rules.budget else nullcontext():
        options = transform.options()
        stored: bytes = rules.pool.call(
            encode_again, ext, data, options, unit=where, where=where, max_pixels=most
        )
        return stored


@dataclass(frozen=True, slots=True)
class FormNote:
    """A count of images with one role and one type of elements, or of other parts that are alike.

    Attributes:
        role: Empty, or the name in ``NAME.png``. For parts that are not images, and for masks
            without a name: a dot and the extension.
        dtype: Type of the elements; for parts that are not images, types and numbers of dimensions.
        key: The object of the first image or part.
    """

    role: str
    dtype: str
    count: int
    key: str


def note_role(ext: str, decoders: Decoders) -> str:
    stem = ext.rpartition(".")[0]
    return stem if decoders.is_image(ext) and (stem or not decoders.is_mask(ext)) else f".{ext}"


class FormTally:
    """A collector of a shard's notes, whose memory does not grow with the number of images."""

    def __init__(self, decoders: Decoders = IMAGES_ONLY) -> None:
        self._decoders = decoders
        self._notes: dict[tuple[str, str], FormNote] = {}

    def add(self, ext: str, key: str, form: Form | str) -> None:
        """Add a part; ``form`` is from `check_decodable`."""
        dtype = form if isinstance(form, str) else form.dtype
        self.join([FormNote(note_role(ext, self._decoders), dtype, 1, key)])

    def join(self, notes: Iterable[FormNote]) -> None:
        for note in notes:
            place = note.role, note.dtype
            before = self._notes.get(place)
            count = note.count + (before.count if before else 0)
            self._notes[place] = replace(before or note, count=count)

    def notes(self) -> tuple[FormNote, ...]:
        return tuple(self._notes.values())


def joined(notes: Iterable[Iterable[FormNote]]) -> tuple[FormNote, ...]:
    tally = FormTally()
    tally.join(chain.from_iterable(notes))
    return tally.notes()
