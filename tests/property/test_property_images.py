"""Whatever the pixels, an image decodes to what a plain model of its mode says."""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from image_files import Array, png_of, saved, tiff_file
from PIL import Image

from larder.cache.decoding import open_picture
from larder.samples import images

KINDS: dict[str, tuple[Any, int]] = {
    "1": (np.uint8, 1),
    "L": (np.uint8, 1),
    "LA": (np.uint8, 2),
    "I;16": (np.uint16, 1),
    "I;16 tiff": (np.uint16, 1),
    "I": (np.int32, 1),
    "F": (np.float32, 1),
    "RGB": (np.uint8, 3),
    "RGB tiff": (np.uint8, 3),
    "RGB 16": (np.uint16, 3),
    "RGBA": (np.uint8, 4),
    "P": (np.uint8, 1),
}
PALETTE = np.random.default_rng(0).integers(0, 256, (256, 3), np.uint8)


def image_of(kind: str, array: Array) -> tuple[bytes, Array]:  # noqa: PLR0911 - a table
    """A file, and the array that it decodes to."""
    grey = array[:, :, 0]
    match kind:
        case "1":
            bits = grey > 127
            return saved(Image.fromarray(bits)), bits[:, :, None].astype(np.uint8) * 255
        case "LA":
            return png_of(array, 4), array[:, :, :1]
        case "RGB":
            return png_of(array, 2), array
        case "RGB tiff":
            return tiff_file(array, photometric=2), array
        case "RGB 16":
            return png_of(array, 2), (array >> 8).astype(np.uint8)
        case "RGBA":
            return png_of(array, 6), array[:, :, :3]
        case "P":
            image = Image.fromarray(grey, "L").copy()
            image.putpalette(PALETTE.tobytes())
            return saved(image), PALETTE[grey]
        case "L" | "I;16":
            return png_of(grey, 0), array
        case _:
            return tiff_file(grey), array


@given(data=st.data(), kind=st.sampled_from(list(KINDS)), strip_bytes=st.integers(1, 3_000))
def test_an_image_decodes_to_its_pixels(data: Any, kind: str, strip_bytes: int) -> None:
    dtype, channels = KINDS[kind]
    height, width = data.draw(st.integers(1, 20)), data.draw(st.integers(1, 20))
    elements = {"allow_nan": False} if kind == "F" else None
    shape = height, width, channels
    file, expected = image_of(kind, data.draw(arrays(dtype, shape, elements=elements)))
    with mock.patch.object(images, "_STRIP_BYTES", strip_bytes):
        picture = open_picture(file, "here")
        assert picture.form == images.Form(height, width, expected.shape[2], str(expected.dtype))
        found = picture.array()
        np.testing.assert_array_equal(found, expected)
        if expected.dtype == np.uint8:
            repeated = np.broadcast_to(expected, (height, width, 3))
            np.testing.assert_array_equal(open_picture(file, "here").array(3), repeated)
