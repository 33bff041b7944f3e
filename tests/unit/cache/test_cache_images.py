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
GREY = RGB[:, :, 0]


def saved(image: Image.Image, format_: str = "PNG", **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()


def decoded(data: bytes, channels: int | None = None) -> np.ndarray[Any, Any]:
    picture = open_picture(data, "here")
    array = picture.array(channels)
    assert array.flags.c_contiguous
    if channels is None:
        assert array.shape == (picture.form.height, picture.form.width, picture.form.channels)
        assert array.nbytes == picture.form.bytes
        assert array.dtype == picture.form.dtype
    return array


def test_colour_and_grey() -> None:
    np.testing.assert_array_equal(decoded(saved(Image.fromarray(RGB))), RGB)
    np.testing.assert_array_equal(decoded(saved(Image.fromarray(GREY))), GREY[:, :, None])


def test_grey_is_repeated_for_three_channels() -> None:
    array = decoded(saved(Image.fromarray(GREY)), 3)
    np.testing.assert_array_equal(array, np.repeat(GREY[:, :, None], 3, axis=2))


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
    both = Image.merge("LA", [Image.fromarray(GREY), Image.new("L", (3, 2), 0)])
    np.testing.assert_array_equal(decoded(saved(both)), GREY[:, :, None])
    premultiplied = decoding.Picture(Image.new("LA", (3, 2), (7, 255)).convert("La"), "here")
    assert premultiplied.array().ravel().tolist() == [7] * 6


def test_a_palette_is_looked_up() -> None:
    image = Image.fromarray(np.array([[0, 1]], np.uint8), "L").convert("P")
    image.putpalette([9, 8, 7, 6, 5, 4])
    assert decoded(saved(image)).tolist() == [[[9, 8, 7], [6, 5, 4]]]


def test_one_bit_gives_0_and_255() -> None:
    image = Image.fromarray(np.array([[True, False]]))
    assert decoded(saved(image)).tolist() == [[[255], [0]]]


@pytest.mark.parametrize("format_", ["PNG", "TIFF"])
def test_grey_of_16_bits_is_kept(format_: str) -> None:
    values = np.array([[0, 300], [65535, 1]], np.uint16)
    array = decoded(saved(Image.fromarray(values), format_))
    assert array.dtype == np.uint16
    np.testing.assert_array_equal(array[:, :, 0], values)


def test_big_endian_grey_of_16_bits_is_kept() -> None:
    values = np.array([[0, 300]], ">u2")
    image = Image.frombytes("I;16B", (2, 1), values.tobytes())
    assert decoded(saved(image, "TIFF")).tolist() == [[[0], [300]]]


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_grey_of_32_bits_is_kept(dtype: str) -> None:
    values = np.array([[-5, 70000]], dtype)
    array = decoded(saved(Image.fromarray(values), "TIFF"))
    assert array.dtype == dtype
    np.testing.assert_array_equal(array[:, :, 0], values)


def test_the_orientation_of_exif_is_not_applied() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.fromarray(RGB), "JPEG", exif=exif)
    assert open_picture(data, "here").form == Form(2, 3, 3, "uint8")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"not an image", "no image format is recognised"),
        (saved(Image.fromarray(RGB))[:20], "the image cannot be decoded"),
        (b"P5\n0 3\n255\n", "the image cannot be decoded"),
    ],
)
def test_no_image_is_named(data: bytes, message: str) -> None:
    with pytest.raises(ObjectError, match=f"^a.tar: x.png: .*{message}") as caught:
        open_picture(data, "a.tar: x.png").array()
    assert caught.value.code == "sample.undecodable"


def test_an_image_cut_short_is_named_when_it_is_decoded() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    picture = open_picture(saved(Image.fromarray(noise), "JPEG")[:-500], "a.tar: x.jpg")
    with pytest.raises(ObjectError, match=r"^a\.tar: x\.jpg: .*truncated"):
        picture.array()


def test_too_many_pixels_are_refused() -> None:
    header = b"P5\n20000 20000\n255\n"
    with pytest.raises(ObjectError, match=r"more than 178,956,970 pixels"):
        open_picture(header, "here")


def test_pillow_does_not_warn() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(ObjectError):
            open_picture(b"P5\n10000 10000\n255\n", "here").array()
    assert caught == []
