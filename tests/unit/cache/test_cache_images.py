"""Images of odd modes, and what is no image.

That the others decode to their pixels is a property: tests/property/test_property_images.py.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np
import pytest
from PIL import Image

from larder.cache import decoding
from larder.cache.decoding import open_picture
from larder.errors import ObjectError
from larder.samples.images import Form

RGB = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 10
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)


def saved(image: Image.Image, format_: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def decoded(data: bytes) -> np.ndarray[Any, Any]:
    array = open_picture(data, "here").array()
    assert array.flags.c_contiguous
    return array


@pytest.mark.parametrize("mode", ["RGBA", "P", "CMYK", "YCbCr", "HSV", "PA", "RGBX", "RGBa"])
def test_other_modes_become_rgb(mode: str) -> None:
    source = Image.fromarray(RGB)
    if mode == "RGBa":
        source = source.convert("RGBA")
    if mode == "PA":
        source = source.convert("P")
    image = source.convert(mode)
    picture = decoding.Picture(image, "here")
    assert picture.form == Form(2, 3, 3, "uint8")
    assert picture.array().shape == (2, 3, 3)


def test_alpha_is_dropped_not_blended() -> None:
    alpha = np.zeros((2, 3, 1), np.uint8)
    image = Image.fromarray(np.concatenate([RGB, alpha], axis=2))
    np.testing.assert_array_equal(decoded(saved(image)), RGB)
    premultiplied = decoding.Picture(Image.new("LA", (3, 2), (7, 255)).convert("La"), "here")
    assert premultiplied.array().ravel().tolist() == [7] * 6


def test_big_endian_grey_of_16_bits_is_kept() -> None:
    values = np.array([[0, 300]], ">u2")
    image = Image.frombytes("I;16B", (2, 1), values.tobytes())
    assert decoded(saved(image, "TIFF")).tolist() == [[[0], [300]]]


def test_the_orientation_of_exif_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.fromarray(RGB), "JPEG", exif=exif)
    assert open_picture(data, "here").form == Form(2, 3, 3, "uint8")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not an image",
        saved(Image.fromarray(RGB))[:20],
        saved(Image.fromarray(NOISE), "JPEG")[:-500],
        b"P5\n0 3\n255\n",
        b"P5\n20000 20000\n255\n",
    ],
    ids=["empty", "text", "PNG cut short", "JPEG cut short", "no width", "too many pixels"],
)
def test_what_is_no_image_is_named(data: bytes) -> None:
    with pytest.raises(ObjectError) as caught:
        open_picture(data, "a.tar: x.png").array()
    assert (caught.value.code, caught.value.where) == ("sample.undecodable", "a.tar: x.png")


def test_pillow_does_not_warn() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ObjectError):
            open_picture(b"P5\n10000 10000\n255\n", "here").array()
    assert caught == []
