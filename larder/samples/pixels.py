"""Pixels of a loaded image: conversion and resizing, equal for all callers.

Callers are packing, caches, loaders and cards. docs/reference/images.md describes the array of each
kind of image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from larder.config.shape import ImageShape
from larder.samples.image_parts import Array, BadImageError, Form, form_of, kept_mode

if TYPE_CHECKING:
    from PIL import Image

Box = tuple[float, float, float, float]
"""Left, top, right and bottom of a piece of an image, in pixels."""

# Modes with premultiplied alpha can only be converted to their plain form.
_PLAIN: Final = {"La": "LA", "RGBa": "RGBA"}
_WITH_ALPHA: Final = ("LA", "La", "PA", "RGBA", "RGBa")

_STRIP_BYTES: Final = 4 << 20


def plain(
    image: Image.Image, *, channels: int | None = None, mask: bool = False, alpha: bool = False
) -> Image.Image:
    """Convert an image to the mode of its array; ``alpha`` adds its alpha or transparent colour.

    With 3 ``channels``, 8-bit grey becomes colour. A mask keeps the numbers of its palette.
    """
    mode = "RGB" if channels == 3 and not mask else kept_mode(image.mode, mask=mask)[0]
    if mode.startswith("I;16"):  # Pillow converts between byte orders by way of 8 bits
        return image if mode == "I;16" else image_of(np.asarray(image).astype("<u2"))
    clear = "transparency" in image.info and not mask
    if alpha and mode in ("L", "RGB") and (clear or image.mode in _WITH_ALPHA):
        mode += "A"
    image = image.convert(_PLAIN[image.mode]) if image.mode in _PLAIN else image
    return image if image.mode == mode else image.convert(mode)


def resized(
    image: Image.Image,
    size: tuple[int, int],
    *,
    mask: bool = False,
    bicubic: bool = False,
    box: Box | None = None,
) -> Image.Image:
    """Resize a plain image, or the piece in ``box``; for a mask, take the nearest pixels.

    Colours are resized without regard to alpha, which training drops. Pillow would multiply colours
    by alpha, so that transparent pixels become black.
    """
    from larder.samples.pillow import Image

    if image.size == size and box is None:
        return image
    method = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
    method = Image.Resampling.NEAREST if mask else method
    if image.mode not in ("LA", "RGBA"):
        return image.resize(size, method, box=box)
    bands = [band.resize(size, method, box=box) for band in image.split()]
    return Image.merge(image.mode, bands)


def decoded(image: Image.Image, channels: int | None = None, *, mask: bool = False) -> Array:
    """Make the array of a loaded image, (height, width, channels), in C order.

    The arguments are the same as for `plain`. Memory beyond the array is a few MiB.
    """
    form = form_of(image, mask=mask)
    array = np.empty((form.height, form.width, channels or form.channels), form.dtype)
    rows = max(1, _STRIP_BYTES // (array.nbytes // form.height))
    for top in range(0, form.height, rows):
        bottom = min(top + rows, form.height)
        strip = image if rows >= form.height else image.crop((0, top, form.width, bottom))
        strip = plain(strip, channels=channels, mask=mask)
        array[top:bottom] = np.asarray(strip).reshape(bottom - top, form.width, -1)
    return array


def fitted_form(form: Form, shape: ImageShape, *, mask: bool) -> Form:
    """Return the form of the array of `fitted`; only masks may have elements other than bytes."""
    if mask:
        return Form(shape.height, shape.width, form.channels, form.dtype)
    if form.dtype != "uint8":
        raise BadImageError(f"its elements are {form.dtype}, and cache.images takes bytes alone")
    return Form(shape.height, shape.width, shape.channels, form.dtype)


def fitted(image: Image.Image, shape: ImageShape, *, mask: bool = False) -> Array:
    """Scale the middle of a loaded image, cut in the proportions of a shape, to this shape."""
    box = middle(image.size, shape)
    piece = image if box[2:] == image.size else image.crop(box)
    piece = plain(piece, mask=mask)
    mode = "RGB" if shape.channels == 3 else "L"
    piece = piece if mask or piece.mode == mode else piece.convert(mode)
    small = resized(piece, (shape.width, shape.height), mask=mask)
    _, dtype = kept_mode(small.mode, mask=mask)
    return np.asarray(small, dtype).reshape(shape.height, shape.width, -1)


def middle(size: tuple[int, int], shape: ImageShape) -> tuple[int, int, int, int]:
    """Choose the largest box in the proportions of a shape, in the middle of an image."""
    scale = min(size[0] / shape.width, size[1] / shape.height)
    width, height = (max(1, round(side * scale)) for side in (shape.width, shape.height))
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return left, top, left + width, top + height


def scaled(pixels: Array, size: int, box: Box) -> Array:
    """Scale a piece of an image, given as an array of bytes, to a square."""
    image = image_of(pixels)
    box = (*box[:2], min(box[2], image.width), min(box[3], image.height))  # not rounded up
    return np.asarray(resized(image, (size, size), box=box)).reshape(size, size, -1)


def image_of(pixels: Array) -> Image.Image:
    """Make an image of an array of shape (height, width) or (height, width, channels)."""
    from larder.samples.pillow import Image

    return Image.fromarray(pixels[:, :, 0] if pixels.shape[2:] == (1,) else pixels)
