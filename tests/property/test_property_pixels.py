"""All that makes pixels makes the same: packing, caches, loaders, checks, the card.

`LARDER_PICTURES=2000` tries as many pictures; each kind is tried once otherwise.
"""

import io
import os
from itertools import islice
from typing import Any

import numpy as np
import pytest
from PIL import Image

from larder.cache.decoding import OpenedImage
from larder.card.pictures import _thumbnail
from larder.config.shape import DecoderUse, ImageShape, Transform
from larder.errors import ObjectError
from larder.readers import image_decoding
from larder.readers.augment import RandomResizedCrop
from larder.readers.image_decoding import decode_image, decode_mask
from larder.samples.decoders import Decoders
from larder.samples.pixels import decoded, fitted, image_of, plain, resized
from larder.shards.images.check import ImageRules, check_decodable
from larder.shards.images.transform import encode_again, target_size
from tests.support.pictures import (
    MODES,
    RESIZES,
    Array,
    Picture,
    bands,
    by_bands,
    noise,
    numbers,
    pictures,
    square,
)

BILINEAR, BICUBIC = Image.Resampling.BILINEAR, Image.Resampling.BICUBIC
COUNT = int(os.environ.get("LARDER_PICTURES", "0"))
JPEGS = ("JPEG", "MPO")


def equal(found: Array, wanted: Array, what: str) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), what
    assert np.array_equal(found, wanted), what


def colour(array: Array) -> Array:
    return np.repeat(array, 3, axis=2) if array.shape[2] == 1 else array


def refused(call: Any, *args: Any, **options: Any) -> bool:
    try:
        call(*args, **options)
    except ObjectError:
        return True
    return False


def packed(data: bytes, ext: str = "png", **options: Any) -> bytes:
    transform = Transform(**{"format": "png", **options})
    return encode_again(ext, io.BytesIO(data), transform, where="a", max_pixels=10**6)


def nearest(array: Array, size: tuple[int, int]) -> Array:
    return by_bands(array, size, Image.Resampling.NEAREST)


def check_picture(picture: Picture, size: int) -> None:
    name, data, source = picture
    what = f"{name}, {size}"
    mode, wanted, alpha, turn = bands(data)
    if source is not None and mode not in ("P", "PA", "CMYK", "YCbCr", "LAB", "RGBX"):
        elements = source[..., : wanted.shape[2]].astype(wanted.dtype)
        equal(wanted, np.where(elements, 255, 0).astype("u1") if mode == "1" else elements, what)
    check_decodable("png", data, "decode", where=what)
    equal(OpenedImage(data, what).array(), wanted, what)
    bytes_ = wanted.dtype == np.uint8
    if bytes_:
        check_bytes(picture, wanted, size, what)
    else:
        shape = ImageShape(size, size, 3)
        assert refused(decode_image, data, what)
        assert refused(decode_image, data, what, size)
        assert refused(OpenedImage, data, what, shape=shape)
    if wanted.dtype in (np.int32, np.float32):
        assert refused(packed, data)
        assert refused(packed, data, "seg.png", masks=("seg",))
    else:
        check_packed(data, size, wanted, alpha, turn, what)
        for transform in ({}, {"resize": size, "enlarge": True}):
            assert bytes_ != refused(packed, data, **{"format": "jpeg", **transform})
    check_mask(data, size, what)
    with Image.open(io.BytesIO(_thumbnail(data, what))) as small:
        if bytes_:
            equal(np.asarray(small).reshape(wanted.shape), wanted, what)


def check_bytes(picture: Picture, wanted: Array, size: int, what: str) -> None:
    data = picture.data
    jpeg = data.startswith(b"\xff\xd8") and -(-7 * min(wanted.shape[:2]) // 8) >= size
    equal(OpenedImage(data, what).array(3), colour(wanted), what)
    equal(decode_image(data, what), colour(wanted), what)
    small = by_bands(square(wanted), (size, size), BILINEAR)
    equal(OpenedImage(data, what, shape=ImageShape(size, size, 3)).array(), colour(small), what)
    if not jpeg:  # loaders decode a large one to fewer pixels at once
        equal(decode_image(data, what, size), colour(small), what)
    if wanted.shape[0] == wanted.shape[1]:
        crop = RandomResizedCrop(size, scale=(1, 1), mirror=0)
        made = crop({"key": "a", "png": data}, np.random.default_rng(0))["image"]
        if not jpeg:
            equal(made, colour(small), what)


def check_packed(
    data: bytes, size: int, wanted: Array, alpha: Array | None, turn: int, what: str
) -> None:
    with Image.open(io.BytesIO(data)) as image:
        whole = image.size
        reduced = image.format in JPEGS and min(whole) >= 6 * size
    for resize in (None, size):
        goal = target_size(whole, Transform(resize=resize, enlarge=True))
        if reduced and resize:
            continue
        made = packed(data, resize=resize, enlarge=True)
        _, found, clear, orientation = bands(made)
        shrunk = wanted if goal == whole else by_bands(wanted, goal, BICUBIC)
        equal(found, shrunk, what)
        assert orientation == turn, what
        if alpha is None or wanted.dtype != np.uint8:
            assert clear is None, what
        else:
            assert clear is not None, what
            equal(clear, alpha if goal == whole else by_bands(alpha, goal, BICUBIC), what)


def check_mask(data: bytes, size: int, what: str) -> None:
    mask = Decoders((DecoderUse("png", "mask"),))
    if refused(decode_mask, data, what):
        assert refused(
            check_decodable, "png", data, "decode", where=what, rules=ImageRules(decoders=mask)
        )
        assert refused(OpenedImage, data, what, mask=True)
        assert refused(packed, data, "seg.png", masks=("seg",))
        return
    wanted = numbers(data)
    check_decodable("png", data, "decode", where=what, rules=ImageRules(decoders=mask))
    equal(decode_mask(data, what), wanted, what)
    equal(OpenedImage(data, what, mask=True).array(), wanted, what)
    small = nearest(square(wanted), (size, size))
    equal(decode_mask(data, what, size), small, what)
    shape = ImageShape(size, size, 3)
    equal(OpenedImage(data, what, mask=True, shape=shape).array(), small, what)
    if wanted.dtype in (np.int32, np.float32):
        return
    with Image.open(io.BytesIO(data)) as image:
        goal = target_size(image.size, Transform(resize=size, enlarge=True))
    for options, result in (({}, wanted), ({"resize": size, "enlarge": True}, None)):
        made = packed(data, "seg.png", masks=("seg",), **options)
        equal(numbers(made), nearest(wanted, goal) if result is None else result, what)


def test_every_way_makes_the_same_pixels():
    most = COUNT or sum(1 for _ in pictures(1))
    for number, picture in enumerate(islice(pictures(1 + most // 100), most)):
        check_picture(picture, RESIZES[(number + number // len(RESIZES)) % len(RESIZES)])
    assert number + 1 == most > 100


@pytest.mark.parametrize("mode", MODES)
def test_every_mode_is_converted_and_resized_also_without_a_file(mode):
    for number, size in enumerate(RESIZES):
        image = noise(mode, (size, 12), number)
        for mask in (False, True):
            array = decoded(image, mask=mask)
            goal = (7, 9)
            small = resized(plain(image, mask=mask), goal, mask=mask)
            made = np.asarray(small).reshape(9, 7, -1).astype(array.dtype)
            if mask:
                equal(made, nearest(array, goal), mode)
            elif array.dtype == np.uint8:
                equal(made, by_bands(array, goal, BILINEAR), mode)
                wanted = colour(by_bands(square(array), (5, 5), BILINEAR))
                equal(fitted(image, ImageShape(5, 5, 3)), wanted, mode)
        assert plain(image).mode in ("L", "RGB", "I", "F", "I;16")


@pytest.mark.parametrize("dtype", ["u1", "u2", "i4"])
@pytest.mark.parametrize("side", [1, 2, 3, 7, 20, 64, 255])
def test_the_nearest_element_is_the_one_whose_middle_is_nearest(side, dtype):
    places = np.arange(side, dtype=dtype).reshape(1, -1)
    for count in range(1, 70):
        small = resized(image_of(places), (count, 1), mask=True)
        middles = (np.arange(count) + 0.5) * side / count
        away = np.abs(np.asarray(small)[0] + 0.5 - middles)
        assert (away <= 0.5 + 1e-9).all()


def test_a_large_jpeg_is_decoded_by_pillow_as_by_simplejpeg(monkeypatch):
    """Both halve it while it is decoded, where half of it is what is asked for."""
    file = io.BytesIO()
    noise("RGB", (8, 8), 1).resize((64, 64), BICUBIC).save(file, "JPEG", subsampling="4:4:4")
    fast = decode_image(file.getvalue(), "a", 32)
    monkeypatch.setattr(image_decoding, "_simplejpeg", lambda: None)
    assert np.abs(fast.astype(int) - decode_image(file.getvalue(), "a", 32)).max() <= 4
