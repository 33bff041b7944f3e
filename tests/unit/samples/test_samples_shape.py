"""Images of one shape, for a cache."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from larder.config.shape import ImageShape
from larder.samples.pixels import fitted, image_of

sides = st.integers(1, 40)


def noise(height: int, width: int, *channels: int) -> np.ndarray:
    return np.random.default_rng(height * width).integers(0, 256, (height, width, *channels), "u1")


def shaped(pixels: np.ndarray, shape: ImageShape, *, mask: bool) -> np.ndarray:
    return fitted(image_of(pixels), shape, mask=mask)


@given(sides, sides, sides, sides)
def test_a_mask_keeps_its_elements(height, width, wanted, across):
    mask = np.arange(height * width, dtype=np.uint16).reshape(height, width, 1)
    made = shaped(mask, ImageShape(wanted, across, 3), mask=True)
    assert made.shape == (wanted, across, 1)
    assert made.dtype == mask.dtype
    assert (np.diff(made[0, :, 0].astype(int)) >= 0).all()
    assert (np.diff(made[:, 0, 0].astype(int)) >= 0).all()


@given(sides, sides, st.sampled_from([1, 3]))
def test_an_image_of_the_shape_is_as_it_was(height, width, channels):
    pixels = noise(height, width, channels)
    shape = ImageShape(height, width, channels)
    assert np.array_equal(shaped(pixels, shape, mask=False), pixels)
    assert np.array_equal(shaped(pixels, shape, mask=True), pixels)


@given(sides, sides, sides, sides, st.sampled_from([1, 3]), st.sampled_from([1, 3]))
def test_every_shape_can_be_made(height, width, wanted, across, before, after):
    pixels = noise(height, width, before)
    assert shaped(pixels, ImageShape(wanted, across, after), mask=False).shape == (
        *(wanted, across, after),
    )


@pytest.mark.parametrize(("height", "width"), [(4, 8), (8, 8), (4, 20)])
def test_the_middle_is_kept_in_the_proportions_of_the_shape(height, width):
    pixels = np.zeros((height, width, 1), np.uint8)
    top, left = (height - 4) // 2, (width - 8) // 2
    pixels[top : top + 4, left : left + 8] = 200
    assert (shaped(pixels, ImageShape(2, 4, 1), mask=False) == 200).all()
    assert (shaped(pixels, ImageShape(2, 4, 1), mask=True) == 200).all()
