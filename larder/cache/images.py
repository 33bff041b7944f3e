"""Images as arrays of shape (height, width, channels), decoded by Pillow.

====================================  ========  ===========================================
the image                             channels  elements
====================================  ========  ===========================================
1-bit or 8-bit grey                   1         uint8; one bit becomes 0 or 255
16-bit grey                           1         uint16, unscaled
32-bit grey; floating point           1         int32; float32
anything else                         3         uint8: red, green, blue
====================================  ========  ===========================================

Palettes are resolved. CMYK and YCbCr are converted with Pillow's formulas, without colour profiles.
Alpha is dropped, not blended. Pillow reduces 16-bit colours to 8 bits. EXIF orientation is not
applied. If there are several frames, the first is used.
"""

from __future__ import annotations

import io
import math
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from larder.cache.record import Array
from larder.errors import ObjectError
from larder.samples.images import FORMATS

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Form", "Picture", "open_picture"]

# How Pillow's modes other than colour are kept: the mode to convert to, and the dtype.
_GREY = {
    "1": ("L", "uint8"),
    "L": ("L", "uint8"),
    "LA": ("L", "uint8"),
    "La": ("L", "uint8"),
    "I": ("I", "int32"),
    "F": ("F", "float32"),
}
# Modes with premultiplied alpha can only be converted to their plain form.
_PLAIN = {"La": "LA", "RGBa": "RGBA"}
_SILENT = r"PIL\."


@dataclass(frozen=True, slots=True)
class Form:
    """The shape and dtype of an image's array."""

    height: int
    width: int
    channels: int
    dtype: str

    @property
    def bytes(self) -> int:
        """Length of the array in bytes."""
        return math.prod((self.height, self.width, self.channels)) * np.dtype(self.dtype).itemsize


class Picture:
    """An image whose header was read; created by `open_picture`.

    Attributes:
        form: The form of the result of `array`.
    """

    def __init__(self, image: Image.Image, where: str) -> None:
        width, height = image.size
        self._image = image
        self._where = where
        self._mode, dtype = _GREY.get(image.mode, ("RGB", "uint8"))
        if image.mode.startswith("I;16"):
            self._mode, dtype = image.mode, "uint16"
        self.form = Form(height, width, 3 if self._mode == "RGB" else 1, dtype)

    def array(self, channels: int | None = None) -> Array:
        """Decode the image. May be called only once, in any thread.

        Args:
            channels: 3 repeats 8-bit grey values as red, green and blue; None keeps grey.

        Returns:
            An array of shape (height, width, channels), in C order.

        Raises:
            ObjectError: ``sample.undecodable``.
        """
        mode = "RGB" if channels == 3 else self._mode
        try:
            with self._image as opened:
                opened.load()
                image = opened.convert(_PLAIN.get(opened.mode, opened.mode))
                array = np.asarray(image if image.mode == mode else image.convert(mode))
        except Exception as error:  # noqa: BLE001 - on bad data, Pillow's plugins raise whatever comes
            _undecodable(str(error) or type(error).__name__, self._where)
        array = array.astype(self.form.dtype, copy=False)
        return array.reshape(self.form.height, self.form.width, -1)


def open_picture(data: bytes, where: str) -> Picture:
    """Read the header of an image.

    Args:
        data: The whole file.
        where: The shard and sample it comes from, for errors.

    Raises:
        ObjectError: ``sample.undecodable``: not an image, or more than 178,956,970 pixels,
            Pillow's limit against decompression bombs.
    """
    from PIL import Image, UnidentifiedImageError

    _silence()
    if not data:
        _undecodable("it is empty", where)
    try:
        picture = Picture(Image.open(io.BytesIO(data), formats=FORMATS), where)
    except UnidentifiedImageError:
        _undecodable("no image format is recognised", where)
    except Exception as error:  # noqa: BLE001 - on bad data, Pillow's plugins raise whatever comes
        _undecodable(str(error) or type(error).__name__, where)
    if not picture.form.bytes:
        _undecodable("it has no pixels", where)
    return picture


def _silence() -> None:
    # Not with catch_warnings, which restores the filters of all threads, in any order.
    front = warnings.filters[0] if warnings.filters else None
    if front is None or getattr(front[3], "pattern", None) != _SILENT:
        warnings.filterwarnings("ignore", module=_SILENT)


def _undecodable(reason: str, where: str) -> NoReturn:
    raise ObjectError(
        "sample.undecodable",
        f"the image cannot be decoded: {reason}",
        where=where,
        hint="fix or exclude it, or use a cache of encoded records",
    ) from None
