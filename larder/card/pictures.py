"""Some samples of a version as small pictures, or as the beginning of their text."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from larder.errors import ObjectError
from larder.progress import Progress
from larder.readers.split import SplitSamples
from larder.samples.image_parts import decoding, discarding, is_image, load, open_image
from larder.samples.indexed import Sample
from larder.samples.naming import LABEL_EXT
from larder.samples.pixels import decoded, image_of, resized
from larder.units import format_bytes

MAX_SAMPLE_BYTES = 32_000_000
MAX_PIXELS = 50_000_000
"""Larger samples and images are not read, so that memory is bounded."""

_SIDE = 160
_SMALL = 64
_TEXT = 300
_MAX_TEXT_BYTES = 1_000_000


class Picture(NamedTuple):
    """A sample on the contact sheet.

    Attributes:
        image: A PNG or JPEG of at most 160 pixels; empty if the sample has no image.
        text: Text in place of an image.
    """

    split: str
    key: str
    label: int | None
    image: bytes
    text: str

    @property
    def media_type(self) -> str:
        return "image/png" if self.image.startswith(b"\x89PNG") else "image/jpeg"


def pictures(
    samples: Mapping[str, SplitSamples], count: int, seed: str, progress: Progress
) -> Iterator[Picture]:
    """Yield about ``count`` random samples, divided among splits by their numbers of samples.

    Equal seeds give equal samples. Memory holds one sample at a time.
    """
    total = sum(map(len, samples.values()))
    for split, each in samples.items():
        wanted = min(len(each), max(1, round(count * len(each) / total))) if count and total else 0
        choice = random.Random(f"{seed} {split}")  # noqa: S311 # not for secrets
        numbers = sorted(choice.sample(range(len(each)), wanted))
        for number, size_bytes in zip(numbers, each.stored_bytes(numbers).tolist(), strict=True):
            if size_bytes > MAX_SAMPLE_BYTES:
                text = f"{format_bytes(size_bytes)}, too large to show"
                yield Picture(split, f"sample {number}", None, b"", text)
            else:
                yield _picture(split, each[number])
            progress.advance("card", objects=1)


def _picture(split: str, sample: Sample) -> Picture:
    parts = {ext: data for ext, data in sample.parts.items() if ext != LABEL_EXT}
    image = next((data for ext, data in parts.items() if is_image(ext)), b"")
    if image:
        try:
            return Picture(split, sample.key, sample.label, _thumbnail(image, sample.key), "")
        except ObjectError as error:
            return Picture(split, sample.key, sample.label, b"", error.message)
    texts = [_text(ext, data) for ext, data in parts.items()]
    return Picture(split, sample.key, sample.label, b"", "\n".join(texts))


def _text(ext: str, data: bytes) -> str:
    """Return the beginning of a text, or the size of other data."""
    if len(data) <= _MAX_TEXT_BYTES:
        try:
            text = data.decode()
        except UnicodeDecodeError:
            text = "\0"
        if "\0" not in text:
            return f"{ext}: {text[:_TEXT]}{'…' if len(text) > _TEXT else ''}"
    return f"{ext}: {format_bytes(len(data))}"


def _thumbnail(data: bytes, where: str) -> bytes:
    with decoding(where, ""):
        image = open_image(data, MAX_PIXELS)
        with discarding(image):
            image.draft(None, (_SIDE, _SIDE))  # a JPEG is decoded to little more than that
            load(image)
            array = decoded(image)
    if array.dtype != np.uint8:  # grey of more than 8 bits: from black to white
        finite = np.nan_to_num(array.astype(np.float32))
        span = float(finite.max() - finite.min()) or 1.0
        array = ((finite - finite.min()) * (255 / span)).astype(np.uint8)
    large = image_of(array)
    shrunk = min(1, _SIDE / max(large.size))
    size = max(1, round(large.width * shrunk)), max(1, round(large.height * shrunk))
    small = resized(large, size, bicubic=True)
    target = io.BytesIO()
    if max(small.size) <= _SMALL:
        small.save(target, "PNG")
    else:
        small.save(target, "JPEG", quality=80)
    return target.getvalue()
