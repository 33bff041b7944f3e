"""Settings of Pillow that the host has made change no verdict of Larder's, and stay as they are."""

import io
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from image_files import saved
from PIL import GifImagePlugin, Image, ImageFile

from larder.cache.decoding import open_picture
from larder.card.pictures import _thumbnail
from larder.config.shape import ImageShape, Transform
from larder.errors import ObjectError
from larder.readers.augment import RandomResizedCrop
from larder.readers.images import decode_image, decode_mask
from larder.samples.images import open_image
from larder.shards.images.check import check_image
from larder.shards.images.transform import encode_again

SIDE = 64
SETTINGS: list[tuple[Any, str, Any]] = [
    (ImageFile, "LOAD_TRUNCATED_IMAGES", True),
    (Image, "MAX_IMAGE_PIXELS", 1),
    (GifImagePlugin, "LOADING_STRATEGY", GifImagePlugin.LoadingStrategy.RGB_ALWAYS),
]


@pytest.fixture
def host(monkeypatch):
    for module, name, value in SETTINGS:
        monkeypatch.setattr(module, name, value)


def noise() -> Image.Image:
    pixels = np.random.default_rng(0).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    return Image.fromarray(pixels)


CUT = {
    name: saved(noise(), name)[:-2_000]
    for name in ("JPEG", "PNG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000")
}
PATHS = {
    "packing": lambda data: encode_again(
        "jpg", io.BytesIO(data), Transform(8, format="png"), where="a", max_pixels=10**6
    ),
    "mask": lambda data: decode_mask(data, "a"),
    "check": lambda data: check_image("jpg", data, "decode", where="a"),
    "cache": lambda data: open_picture(data, "a").array(),
    "shape": lambda data: open_picture(data, "a", shape=ImageShape(8, 8, 3)).array(),
    "loader": lambda data: decode_image(data, "a"),
    "size": lambda data: decode_image(data, "a", SIDE),
    "crop": lambda data: RandomResizedCrop(8)({"jpg": data}, np.random.default_rng(0)),
    "card": lambda data: _thumbnail(data, "a"),
}


def verdict(path: str, data: bytes) -> bool:
    try:
        PATHS[path](data)
    except ObjectError:
        return False
    return True


@pytest.mark.parametrize("path", PATHS)
def test_cut_images_are_bad_whatever_the_host_accepts(path, host):
    assert not any(verdict(path, data) for data in CUT.values())
    with ThreadPoolExecutor(2) as threads:
        assert not any(threads.map(lambda data: verdict(path, data), CUT.values()))
    assert all(getattr(module, name) == value for module, name, value in SETTINGS)


def test_the_host_still_loads_what_it_wants_to(host, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", None)
    open_image(io.BytesIO(saved(noise())), 10**12)
    assert Image.MAX_IMAGE_PIXELS is None
    Image.open(io.BytesIO(CUT["JPEG"])).load()


def test_the_pixels_are_the_same_whatever_the_host_has_set(host):
    palette = noise().quantize(16)
    data = saved(palette, "GIF")
    assert np.array_equal(decode_image(data, "a"), np.asarray(palette.convert("RGB")))
    assert np.array_equal(decode_mask(data, "a")[..., 0], np.asarray(palette))


def test_a_limit_that_was_raised_does_not_stay(host):
    large = saved(Image.new("1", (20_000, 18_000)))
    open_image(io.BytesIO(large), 10**9)
    with pytest.raises(ObjectError, match="more than 178,956,970 pixels"):
        decode_image(large, "a")
