"""Packing keeps pixels, alpha and byte order, and images become no larger than the limit."""

import io

import pytest
from image_files import saved
from PIL import Image

from larder.config.shape import Transform
from larder.shards.images.check import ImageRules, stored_image
from larder.shards.images.transform import encode_again
from tests.support.budgets import WatchedBudget
from tests.support.errors import larder_error

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
