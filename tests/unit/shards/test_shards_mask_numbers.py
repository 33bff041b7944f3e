"""Numbers of masks that Pillow would change without a word."""

import io
import struct

import numpy as np
import pytest
from PIL import Image

from larder.config.shape import Transform
from larder.readers.images import decode_mask
from larder.shards.images.transform import encode_again
from tests.image_files import png_chunk
from tests.support.errors import larder_error

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
