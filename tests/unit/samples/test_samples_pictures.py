"""Kinds of images of docs/reference/images.md; others: tests/property/test_property_pixels.py.

Settings of Pillow that the host has made change no verdict of Larder's, and stay as they are.
"""

import io
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import Array, png_chunk, png_file, png_of, saved, tiff_file
from PIL import GifImagePlugin, Image, ImageFile

from larder.cache.decoding import OpenedImage
from larder.card.pictures import _thumbnail
from larder.config.shape import ImageShape, Transform
from larder.errors import ObjectError
from larder.readers.augment import RandomResizedCrop
from larder.readers.image_decoding import decode_image, decode_mask
from larder.samples import image_parts, pixels
from larder.samples.image_parts import BadImageError, form_of, loading_bytes, open_image
from larder.shards.images.check import check_decodable
from larder.shards.images.transform import encode_again
from tests.support.errors import larder_error

PAGE = (Path(__file__).parents[3] / "docs/reference/images.md").read_text()

BYTES = np.arange(6, dtype=np.uint8).reshape(2, 3) * 40
WORDS = np.arange(6, dtype=np.uint16).reshape(2, 3) * 13_000
COLOURS = np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 14
DEEP = np.arange(18, dtype=np.uint16).reshape(2, 3, 3) * 3_700
ALPHA = np.array([[0, 9, 255], [1, 128, 254]], np.uint8)
PALETTE = bytes([0, 0, 0, 9, 8, 7, 200, 100, 50, 255, 0, 1])
NUMBERS = np.array([[0, 1, 2], [3, 2, 1]], np.uint8)
COLOURED = np.frombuffer(PALETTE, np.uint8).reshape(4, 3)[NUMBERS]
GREYS = np.array([[0, 0, 1], [1, 1, 0]], np.uint8)
RED, GREEN = (np.full((4, 4, 3), colour, np.uint8) for colour in ([255, 0, 0], [0, 255, 0]))
PLAIN, BLACK, WHITE = (np.full((2, 3, 3), shade, np.uint8) for shade in (90, 0, 255))
FLOATS, INTS = BYTES.astype(np.float32) / 7, BYTES.astype(np.int32) - 70_000
ROUNDED = np.rint(DEEP / 257).astype(np.uint8)
LIGHT = np.array([1, 0, 0], np.uint8)
TOP = (DEEP >> 8).astype(np.uint8)


def with_alpha(array: Array) -> Array:
    return np.dstack([array, ALPHA.astype(array.dtype)])


def bits(rows: Array, depth: int) -> list[bytes]:
    """Rows of numbers, packed as a PNG has them."""
    packed = []
    for row in rows.tolist():
        text = "".join(f"{number:0{depth}b}" for number in row)
        packed.append(int(text.ljust(-(-len(text) // 8) * 8, "0"), 2).to_bytes(-(-len(text) // 8)))
    return packed


def frames(format_: str, **options: Any) -> bytes:
    first, second = (Image.fromarray(array) for array in (RED, GREEN))
    return saved(first, format_, save_all=True, append_images=[second], **options)


def oriented(array: Array, format_: str, **options: Any) -> bytes:
    exif = Image.Exif()
    exif[0x0112] = 6
    return saved(Image.fromarray(array), format_, exif=exif, **options)


INKS = np.full((2, 3, 4), [165, 165, 165, 0], np.uint8)
GREY_IN_YCBCR = np.full((2, 3, 3), [90, 128, 128], np.uint8)
GREY = "grey of 8 bits or less"
WORD = "grey of 16 bits in PNG, TIFF and JPEG 2000"
PGM = "grey of 16 bits in PGM"
LONG = "grey of 16 bits with a sign, or 32 bits, in TIFF"
FLOAT = "grey in floating point of 32 bits, in TIFF or PFM"
COLOUR = "colour of 8 bits"
DEEP_COLOUR = "colour of 16 bits, grey of 16 bits with alpha"
WITH_ALPHA = "colour with alpha"
FRAMES = "several frames or pages: GIF, APNG, WebP, TIFF, MPO"
ORIENTED = "with an EXIF orientation"
PROFILE = png_chunk(b"iCCP", b"any\0\0" + b"x\x9c\x03\0\0\0\0\1")

CASES: list[tuple[str, str, bytes, Array]] = [
    (GREY, "png", png_of(BYTES, 0), BYTES),
    (GREY, "png 2 bits", png_file(bits(NUMBERS, 2), 3, depth=2, colour=0), NUMBERS * 85),
    (GREY, "tiff, zero is white", tiff_file(BYTES, photometric=0), 255 - BYTES),
    (GREY, "pgm to 3", b"P5 3 2 3\n" + NUMBERS.tobytes(), NUMBERS * 85),
    ("1 bit", "png", png_file(bits(GREYS, 1), 3, depth=1, colour=0), GREYS * 255),
    ("1 bit", "pbm", b"P4 3 2\n" + b"".join(bits(1 - GREYS, 1)), GREYS * 255),
    (COLOUR, "png", png_of(COLOURS, 2), COLOURS),
    (WORD, "png", png_of(WORDS, 0), WORDS),
    (
        PGM,
        "pgm to 1,023",
        b"P5 3 2 1023\n" + (NUMBERS * np.uint16(341)).astype(">u2").tobytes(),
        NUMBERS.astype(np.int32) * 21_845,
    ),
    (DEEP_COLOUR, "png", png_of(DEEP, 2), TOP),
    (DEEP_COLOUR, "ppm", b"P6 3 2 65535\n" + DEEP.astype(">u2").tobytes(), ROUNDED),
    (
        LONG,
        "without a sign",
        tiff_file(BYTES.astype(np.uint32) + 2**31 - 201),
        BYTES.astype(np.int32) + (2**31 - 201),
    ),
    (FLOAT, "pfm", b"Pf 3 2 -1.0\n" + FLOATS[::-1].astype("<f4").tobytes(), FLOATS),
    ("grey with alpha", "png", png_of(with_alpha(BYTES), 4), BYTES),
    (WITH_ALPHA, "png", png_of(with_alpha(COLOURS), 6), COLOURS),
    (
        "palette",
        "png",
        png_file(bits(NUMBERS, 2), 3, depth=2, colour=3, chunks=png_chunk(b"PLTE", PALETTE)),
        COLOURED,
    ),
    ("CMYK", "tiff", tiff_file(INKS, photometric=5), PLAIN),
    ("YCbCr", "tiff", tiff_file(GREY_IN_YCBCR, photometric=6), PLAIN),
    ("Lab, in TIFF", "white", tiff_file(WHITE * LIGHT, photometric=8), WHITE),
    (
        "WebP",
        "alpha",
        saved(Image.fromarray(with_alpha(COLOURS)), "WEBP", lossless=True, exact=True),
        COLOURS,
    ),
    (FRAMES, "gif", frames("GIF"), RED),
    (FRAMES, "apng with a still image", frames("PNG", default_image=True), RED),
    (FRAMES, "mpo", frames("MPO"), np.full((4, 4, 3), [254, 0, 0], np.uint8)),
    (ORIENTED, "jpeg", oriented(PLAIN, "JPEG"), PLAIN),
    (ORIENTED, "tiff", tiff_file(COLOURS, photometric=2, orientation=6), np.rot90(COLOURS, -1)),
    ("with a colour profile (ICC)", "png", png_of(COLOURS, 2, PROFILE), COLOURS),
]

NEAR = {"CMYK", "YCbCr", "Lab, in TIFF"}
"""Computed in other arithmetic here: they may differ by one."""


def rows(title: str) -> list[str]:
    """The first cells of the table that follows a text."""
    table = PAGE.partition(title)[2].partition("|---")[2].partition("\n\n")[0]
    return [line.split("|")[1].strip() for line in table.splitlines()[1:]]


def decoded(data: bytes) -> Array:
    picture = OpenedImage(data, "here")
    array = picture.array()
    assert array.flags.c_contiguous
    form = picture.form
    assert (array.shape, array.dtype) == ((form.height, form.width, form.channels), form.dtype)
    assert array.nbytes == form.bytes
    return array


def test_the_page_lists_these_kinds():
    kinds = list(dict.fromkeys(kind for kind, *_ in CASES))
    assert rows("becomes an array of shape") == kinds


@pytest.mark.parametrize(
    ("kind", "_name", "data", "array"), CASES, ids=[f"{case[0][:9]}-{case[1]}" for case in CASES]
)
@pytest.mark.parametrize("strip_bytes", [1, 1 << 20], ids=["rows", "whole"])
def test_an_image_decodes_as_the_page_says(monkeypatch, strip_bytes, kind, _name, data, array):
    monkeypatch.setattr(pixels, "_STRIP_BYTES", strip_bytes)
    expected = array.reshape(*array.shape[:2], -1)
    found = decoded(data)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=0, atol=1 if kind in NEAR else 0)


REFUSED = {
    "bytes with a sign": tiff_file(BYTES.astype(np.int8)),
    "16-bit grey in which zero is white": tiff_file(WORDS, photometric=0),
    "an element above 2,147,483,647": tiff_file(BYTES.astype(np.uint32) + 2**31 - 1),
    "16-bit floats": tiff_file(BYTES.astype(np.float16)),
    "64-bit floats": tiff_file(BYTES.astype(np.float64)),
    "colour in floats": tiff_file(COLOURS.astype(np.float32), photometric=2),
    "colour in PFM": b"PF 3 2 -1.0\n" + bytes(72),
    "PAM": b"P7\nWIDTH 1\nHEIGHT 1\nDEPTH 1\nMAXVAL 255\nENDHDR\n\0",
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "no columns": b"P5\n0 3\n255\n",
    "nothing": b"",
    "text": b"not an image",
    "a PNG cut short": png_of(COLOURS, 2)[:20],
    "a JPEG cut short": saved(Image.effect_noise((64, 64), 90), "JPEG")[:-500],
    "too many pixels": b"P5\n20000 20000\n255\n",
}


@pytest.mark.parametrize("data", REFUSED.values(), ids=REFUSED)
def test_an_image_that_would_decode_to_other_values_is_refused(data):
    with larder_error("sample.undecodable", "a.tar: x"):
        OpenedImage(data, "a.tar: x").array()


INDEXED = Image.fromarray(NUMBERS * 80).convert("P")
INDEXED.putdata(NUMBERS.ravel().tolist())
INDEXED.putpalette(PALETTE)
MASKS: dict[str, tuple[bytes, Any]] = {
    "palette in a GIF": (saved(INDEXED, "GIF"), NUMBERS),
    "1 bit": (png_file(bits(GREYS, 1), 3, depth=1, colour=0), GREYS),
    "grey of 2 bits": (png_file(bits(NUMBERS, 2), 3, depth=2, colour=0), None),
    "PGM up to 20": (b"P5\n4 1\n20\n" + bytes(4), None),
}


@pytest.mark.parametrize(("data", "numbers"), MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("channels", [None, 3])
def test_a_mask_keeps_its_numbers_or_is_refused(data, numbers, channels):
    if numbers is None:
        with larder_error("sample.undecodable", "x"):
            OpenedImage(data, "x", mask=True)
        return
    found = OpenedImage(data, "x", mask=True).array(channels)
    assert found.dtype == numbers.dtype
    np.testing.assert_array_equal(found, np.repeat(numbers[..., None], channels or 1, 2))


def test_a_mode_without_an_array_is_refused():
    class Other:
        mode, size, format, info = "Q;9", (3, 2), "PNG", {}

    with pytest.raises(image_parts.BadImageError):
        form_of(Other())  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("image", "format_", "options", "bytes_per_pixel"),
    [
        ("1", "PNG", {}, 1),
        ("L", "PNG", {}, 1),
        ("P", "GIF", {}, 1),
        ("I;16", "PNG", {}, 2),
        ("LA", "PNG", {}, 4),
        ("RGB", "JPEG", {}, 4),
        ("RGB", "JPEG", {"progressive": True}, 10),
        ("L", "JPEG", {"progressive": True}, 3),
        ("CMYK", "JPEG", {}, 4),
        ("F", "TIFF", {}, 4),
        ("RGB", "WEBP", {}, 16),
        ("RGB", "JPEG2000", {}, 21),
        ("L", "JPEG2000", {}, 7),
    ],
)
def test_the_memory_is_known_from_the_header(image, format_, options, bytes_per_pixel):
    data = saved(Image.new(image, (30, 20)), format_, **options)
    with open_image(io.BytesIO(data)) as opened:
        assert loading_bytes(opened) == 600 * bytes_per_pixel


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
    "check": lambda data: check_decodable("jpg", data, "decode", where="a"),
    "cache": lambda data: OpenedImage(data, "a").array(),
    "shape": lambda data: OpenedImage(data, "a", shape=ImageShape(8, 8, 3)).array(),
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


def test_a_frame_with_too_many_pixels_is_refused_before_they_are_allocated(monkeypatch):
    from larder.samples.pillow import Image as Own

    monkeypatch.setattr(Own, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    monkeypatch.setattr(Own.core, "fill", None)
    screen = struct.pack("<HHBBB6x", 1, 1, 0x80, 0, 0)
    disposed = b"!\xf9\x04\x08\0\0\0\0"  # the frame becomes background
    frame = struct.pack("<HHHHB", 0, 0, 16_384, 16_384, 0)
    data = b"GIF89a" + screen + disposed + b"," + frame + b"\x02\x02L\x01\0;"
    with pytest.raises(BadImageError, match="more than 178,956,970 pixels"):
        open_image(data)
