"""Decoding of images to pixels and of masks to numbers: whole, scaled, or a piece."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from larder.config.shape import MAX_PIXELS, ImageShape
from larder.packages import failed_import, is_installed, require_module
from larder.readers.numbers import Array
from larder.samples.image_parts import (
    BadImageError,
    check_pixels,
    decoding,
    discarding,
    form_of,
    load,
    open_image,
)
from larder.samples.pixels import Box, decoded, fitted, image_of, middle, scaled

if TYPE_CHECKING:
    from PIL import Image

HINT: Final = (
    "replace it at the source and prepare again, or give reading=larder.Reading(on_error='skip')"
)
_JPEG: Final = b"\xff\xd8\xff"

_HALVINGS: Final = 3
"""Most halvings of a JPEG during decoding; other fractions take longer than the whole image."""

MOST_PIXELS: Final = 16_384
"""Longest side of a square that images are scaled to."""


def load_decoders() -> None:
    """Import the decoders. Call outside threads: a child forked meanwhile would wait for it."""
    require_module("jpeg", "PIL")
    _simplejpeg()
    from larder.samples.pillow import Image

    Image.preinit()


def decode_image(
    data: bytes | Array, where: str, size: int | None = None, max_pixels: int = MAX_PIXELS
) -> Array:
    """Decode an image to uint8 pixels (height, width, 3); with ``size``, (size, size, 3).

    Raises:
        ObjectError: ``sample.undecodable``, also for images of more than 8 bits a channel.
    """
    data = bytes(data)
    shape = ImageShape(size, size, 3) if size else None
    with decoding(where, HINT):
        if size and shape and (pixels := _scaled_jpeg(data, size, size, max_pixels)) is not None:
            left, top, right, bottom = middle((pixels.shape[1], pixels.shape[0]), shape)
            piece = np.ascontiguousarray(pixels[top:bottom, left:right])
            return piece if bottom - top == size else fitted(image_of(piece), shape)
        with open_image(data, max_pixels) as image, discarding(image):
            _check_bytes(image)
            if size:
                image.draft("RGB", (size, size))
            load(image)
            return fitted(image, shape) if shape else decoded(image, channels=3)


def decode_piece(
    data: bytes | Array, where: str, size: int, choose: Callable[[int, int], Box]
) -> Array:
    """Decode a piece of an image to (size, size, 3); ``choose`` takes the width and the height.

    A JPEG is decoded at the smallest scale with enough pixels for the piece. Errors are as in
    `decode_image`.
    """
    data = bytes(data)
    with decoding(where, HINT), open_image(data) as image, discarding(image):
        _check_bytes(image)
        width, height = image.size
        box = choose(width, height)
        spare = min(box[2] - box[0], box[3] - box[1]) / size
        halvings = sum(2**n <= spare for n in range(1, _HALVINGS + 1))
        least = width >> halvings, height >> halvings
        pixels = _scaled_jpeg(data, *least, MAX_PIXELS)
        if pixels is None:
            image.draft("RGB", least)
            load(image)
            pixels = decoded(image, channels=3)
        across, down = pixels.shape[1] / width, pixels.shape[0] / height
        return scaled(
            pixels, size, (box[0] * across, box[1] * down, box[2] * across, box[3] * down)
        )


def _check_bytes(image: Image.Image) -> None:
    dtype = form_of(image).dtype
    if dtype != "uint8":
        way = "name it in masks, or others in decode, and decode it in transforms"
        raise BadImageError(f"its elements are {dtype}: {way}")


def decode_mask(
    data: bytes | Array, where: str, size: int | None = None, max_pixels: int = MAX_PIXELS
) -> Array:
    """Decode a mask to its numbers, (height, width, channels); resizing takes the nearest."""
    with decoding(where, HINT), open_image(bytes(data), max_pixels) as image, discarding(image):
        form_of(image, mask=True)
        load(image)
        shape = ImageShape(size, size, 1) if size else None
        return fitted(image, shape, mask=True) if shape else decoded(image, mask=True)


def _scaled_jpeg(data: bytes, width: int, height: int, max_pixels: int) -> Array | None:
    """Decode a JPEG in the smallest size that libjpeg offers, at least this wide and high.

    Returns None if Pillow has to decode the image: damaged files, other colours than grey, YCbCr
    and RGB, or without simplejpeg.
    """
    simplejpeg = _simplejpeg()
    if simplejpeg is None or not data.startswith(_JPEG):
        return None
    try:
        rows, columns, colours, _ = simplejpeg.decode_jpeg_header(data)
        check_pixels((columns, rows), max_pixels)
        if colours not in ("Gray", "YCbCr", "RGB"):
            return None
        if height > rows or width > columns:
            height, width = rows, columns  # else a narrow strip is scaled on one side only
        pixels: Array = simplejpeg.decode_jpeg(data, "RGB", min_height=height, min_width=width)
    except ValueError:
        return None
    return pixels


@cache
def _simplejpeg() -> Any:
    if not is_installed("simplejpeg"):
        return None
    try:
        return import_module("simplejpeg")
    except ImportError as error:
        raise failed_import(error, "simplejpeg") from error
