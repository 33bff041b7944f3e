"""The transform of images: sizes, modes, formats, numbers of masks, limits, and metadata."""

import io
import os
import signal
import struct
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from image_files import Array, png_chunk, png_of, saved
from PIL import Image, ImageCms

from larder.budgets import ByteBudget
from larder.config.shape import Transform
from larder.jobs.processes import ProcessPool, shared_pool
from larder.readers.image_decoding import decode_mask
from larder.shards.images.check import ImageRules, stored_image
from larder.shards.images.transform import encode_again, target_size
from tests.support.budgets import WatchedBudget
from tests.support.errors import larder_error

HALF = Transform(resize=16)
RAMP = np.add.outer(np.arange(32), np.arange(48)).astype(np.uint8) * 3
COLOURS = np.dstack([RAMP, RAMP.T.repeat(2, axis=1)[:32, :48], 255 - RAMP])
ALPHA = np.full((32, 48), 200, np.uint8)


def made(data: bytes, transform: Transform = HALF, ext: str = "jpg") -> Image.Image:
    found = encode_again(ext, io.BytesIO(data), transform, where="a", max_pixels=10**6)
    image = Image.open(io.BytesIO(found))
    image.load()
    return image


def refused(data: bytes, transform: Transform = HALF, ext: str = "jpg") -> None:
    with larder_error("sample.undecodable"):
        made(data, transform, ext)


@pytest.mark.parametrize(
    ("size", "resize", "enlarge", "expected"),
    [
        ((500, 375), 256, False, (341, 256)),
        ((375, 500), 256, False, (256, 341)),
        ((200, 300), 256, False, (200, 300)),
        ((200, 300), 256, True, (256, 384)),
        ((256, 300), 256, True, (256, 300)),
        ((10_000, 1), 1, False, (10_000, 1)),
        ((3, 2), 1, False, (2, 1)),
        ((200, 300), None, True, (200, 300)),
    ],
)
def test_the_shorter_side_is_what_is_asked_for(size, resize, enlarge, expected):
    assert target_size(size, Transform(resize=resize, enlarge=enlarge)) == expected


def png_with(array: Array, **chunks: bytes) -> bytes:
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[1 if array.ndim == 2 else array.shape[2]]
    extra = b"".join(png_chunk(name.encode(), data) for name, data in chunks.items())
    return png_of(array, colour, extra)


def palette_png(mode: str = "P", **options: Any) -> bytes:
    return saved(Image.fromarray(COLOURS).convert(mode), **options)


SECOND: dict[str, Any] = {"save_all": True, "append_images": [Image.new("RGB", (48, 32))]}
KEPT = [
    ("grey alpha", png_with(np.dstack([RAMP, ALPHA])), "PNG", "LA"),
    ("palette tRNS", palette_png(transparency=b"\0\1"), "PNG", "RGBA"),
    ("grey jpeg", saved(Image.fromarray(RAMP), "JPEG"), "JPEG", "L"),
    ("cmyk jpeg", saved(Image.fromarray(COLOURS).convert("CMYK"), "JPEG"), "JPEG", "RGB"),
    ("mpo", saved(Image.fromarray(COLOURS), "MPO", **SECOND), "JPEG", "RGB"),
]


@pytest.mark.parametrize(("_name", "data", "format_", "mode"), KEPT, ids=[case[0] for case in KEPT])
@pytest.mark.parametrize("resize", [16, None])
def test_what_an_image_becomes(_name, data, format_, mode, resize):
    image = made(data, Transform(resize=resize))
    assert (image.format, image.size) == (format_, (24, 16) if resize else (48, 32))
    assert image.mode == mode


@pytest.mark.parametrize("format_", ["GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000"])
def test_other_formats_have_to_be_given_one(format_):
    data = saved(Image.fromarray(COLOURS), format_)
    refused(data)
    assert made(data, Transform(resize=16, format="png")).format == "PNG"


def test_the_quality_is_that_of_the_options():
    data = saved(Image.fromarray(COLOURS), "JPEG", quality=99)
    small, large = (made(data, Transform(quality=quality)) for quality in (10, 95))
    assert small.quantization != large.quantization  # type: ignore[attr-defined]
    expected = Image.open(io.BytesIO(saved(Image.fromarray(COLOURS), "JPEG", quality=95)))
    assert large.quantization == expected.quantization  # type: ignore[attr-defined]


def test_a_large_jpeg_is_decoded_smaller():
    wide = Image.fromarray(COLOURS).resize((1_200, 800), Image.Resampling.BICUBIC)
    data = saved(wide, "JPEG", quality=95)
    found = np.asarray(made(data, Transform(resize=32, quality=100)), np.int32)
    assert np.abs(found - COLOURS).mean() < 3
    budget = WatchedBudget(10**9)
    encode_again("jpg", io.BytesIO(data), HALF, where="a", max_pixels=10**7, budget=budget)
    assert budget.asked == [2 * 4 * 150 * 100]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_orientation_and_profile_are_kept_and_nothing_else(kind):
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a maker"
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    options: dict[str, Any] = {"exif": exif, "icc_profile": profile, "dpi": (30, 30)}
    if kind == "JPEG":
        options["comment"] = b"a comment"
    image = made(saved(Image.fromarray(COLOURS), kind, **options))
    assert dict(image.getexif()) == {0x0112: 6}
    assert image.info["icc_profile"] == profile
    assert "comment" not in image.info
    assert image.info.get("dpi") != (30, 30)
    assert image.size == (24, 16)
    plain = made(saved(Image.fromarray(COLOURS), kind))
    assert not {"exif", "icc_profile"} & set(plain.info)


@pytest.mark.parametrize("value", [0, 9])
def test_an_orientation_that_is_none_is_left_out(value):
    exif = Image.Exif()
    exif[0x0112] = value
    assert "exif" not in made(saved(Image.fromarray(COLOURS), "JPEG", exif=exif)).info
    damaged = saved(Image.fromarray(COLOURS), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    assert "exif" not in made(damaged).info


BAD = {
    "empty": b"",
    "text": b"no image",
    "truncated": saved(Image.fromarray(COLOURS), "JPEG")[:-300],
    "too many pixels": saved(Image.new("L", (1_001, 1_000))),
}


@pytest.mark.parametrize("data", BAD.values(), ids=BAD)
@pytest.mark.parametrize("processes", [1, 2])
def test_bad_images_are_named(data, processes):
    with shared_pool(processes) as pool:
        rules = ImageRules(max_pixels=10**6, transform=HALF, pool=pool, budget=ByteBudget(10))
        with larder_error("sample.undecodable", "b/1.jpg"):
            stored_image("jpg", data, where="b/1.jpg", rules=rules)
        assert rules.budget.try_acquire(10) == 10


def test_processes_and_threads_make_the_same_bytes():
    images = [png_with(COLOURS + number) for number in range(20)]
    alone = [
        stored_image("png", data, where="a", rules=ImageRules(transform=HALF)) for data in images
    ]
    with shared_pool(2) as pool, ThreadPoolExecutor(5) as threads:
        rules = ImageRules(transform=HALF, pool=pool)
        found = threads.map(lambda data: stored_image("png", data, where="ü", rules=rules), images)
        assert list(found) == alone


def test_another_process_does_what_a_killed_one_should_have_done():
    with ProcessPool(1) as pool:
        data = png_with(COLOURS)
        options: dict[str, Any] = {"unit": "a", "where": "a", "max_pixels": 10**6}
        first = pool.call(encode_again, "png", data, HALF, **options)
        process = pool._idle.queue[0]
        os.kill(process.process.pid, signal.SIGKILL)
        process.process.wait()
        assert pool.call(encode_again, "png", data, HALF, **options) == first


STRIP = saved(Image.new("RGB", (3_000, 1), "red"))


def packed(
    data: bytes, ext: str = "png", max_pixels: int = 10**8, **options: object
) -> Image.Image:
    transform = Transform(**options)  # type: ignore[arg-type]
    found = encode_again(ext, io.BytesIO(data), transform, where="a", max_pixels=max_pixels)
    return Image.open(io.BytesIO(found))


@pytest.mark.parametrize(
    ("options", "max_pixels"),
    [
        ({"resize": 256}, 178_956_970),  # 768,000 x 256
        ({"resize": 2}, 11_999),
        ({"resize": 2, "masks": ("",)}, 11_999),
        ({"resize": 30, "format": "jpeg"}, 10**9),  # 90,000 is too long a side
    ],
)
def test_what_comes_out_has_the_limits_of_what_goes_in(options, max_pixels):
    with larder_error("sample.undecodable", "a"):
        packed(STRIP, max_pixels=max_pixels, enlarge=True, **options)


def test_what_comes_out_may_have_as_many_pixels_as_the_limit():
    assert packed(STRIP, max_pixels=12_000, enlarge=True, resize=2).size == (6_000, 2)


def test_memory_is_held_for_what_comes_out():
    budget = WatchedBudget(10**9)
    rules = ImageRules(transform=Transform(resize=100, enlarge=True), budget=budget)
    stored_image("png", STRIP, where="a", rules=rules)
    assert budget.asked[0] > 4 * 300_000 * 100


MASK = Transform(masks=("seg",))


@pytest.mark.parametrize(("colours", "most"), [(1, 255), (2, 3), (4, 255), (16, 16), (16, 15)])
def test_numbers_beyond_the_palette_are_kept(colours, most):
    header = struct.pack(">IIBBBBB", most + 1, 1, 8, 3, 0, 0, 0)
    image = Image.fromarray(np.arange(most + 1, dtype=np.uint8)[None])
    raw = io.BytesIO()
    image.save(raw, "PNG")
    pixels = raw.getvalue().partition(b"IDAT")
    data = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", header)
    data += png_chunk(b"PLTE", bytes(range(3 * colours))) + pixels[0][-4:] + b"IDAT" + pixels[2]
    packed = encode_again("seg.png", data, MASK, where="a", max_pixels=1_000)
    for each in (data, packed):
        assert decode_mask(each, "a").ravel().tolist() == list(range(most + 1))


@pytest.mark.parametrize("most", [65_535, 1_000])
def test_a_mask_of_colours_of_16_bits_is_refused(most):
    data = f"P6 1 1 {most}\n".encode() + bytes(range(6))
    with larder_error("sample.undecodable", "a"):
        decode_mask(data, "a")
    with larder_error("sample.undecodable", "a"):
        encode_again("seg.ppm", data, MASK, where="a", max_pixels=1_000)
