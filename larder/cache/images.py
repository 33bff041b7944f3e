"""Images as arrays of shape (height, width, channels), decoded by Pillow.

`larder.samples.pictures` says what each kind of image decodes to.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Final, NoReturn

from larder.config.shape import MAX_PIXELS
from larder.errors import ObjectError
from larder.samples.pictures import (
    Array,
    decoded,
    decoding,
    discarding,
    form_of,
    load,
    loading_bytes,
    open_image,
)

if TYPE_CHECKING:
    from PIL import Image

HINT: Final = "fix or exclude it, or use a cache of encoded records"
"""What to do about a part that cannot be decoded."""


class Picture:
    """An image whose header was read; decoding needs ``loading_bytes`` besides the array."""

    def __init__(self, image: Image.Image, where: str) -> None:
        self._image: Image.Image | None = image
        self._where = where
        self.form = form_of(image)
        self.loading_bytes = loading_bytes(image)

    def array(self, channels: int | None = None) -> Array:
        """Decode the image to shape (height, width, channels), in C order. May be called only once,
        in any thread.

        With 3 ``channels``, 8-bit grey values are repeated as red, green and blue; None keeps grey.
        """
        image, self._image = self._image, None  # it is as large as the array
        assert image is not None, "an image is decoded once"
        with decoding(self._where, HINT), discarding(image):
            load(image)
            return decoded(image, channels)


def open_picture(data: bytes, where: str, *, max_pixels: int = MAX_PIXELS) -> Picture:
    """Read the header of an image; ``sample.undecodable`` if it cannot become an array."""
    if not data:
        _undecodable("it is empty", where)
    with decoding(where, HINT):
        return Picture(open_image(io.BytesIO(data), max_pixels), where)


def _undecodable(reason: str, where: str) -> NoReturn:
    raise ObjectError(
        "sample.undecodable", f"the image cannot be decoded: {reason}", where=where, hint=HINT
    )
