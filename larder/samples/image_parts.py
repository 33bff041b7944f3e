"""Image parts of a sample: their roles, the forms of their arrays, and the memory for decoding.

`larder.samples.pixels` makes the pixels.

docs/reference/images.md has a table with the array of every kind of image. An image is refused if
Pillow decodes it to other values than in the file.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from larder.config.shape import MAX_PIXELS
from larder.disk import limit_error
from larder.errors import LarderError, ObjectError
from larder.machine import give_back_memory
from larder.packages import failed_import

if TYPE_CHECKING:
    from PIL import Image


FORMATS: Final = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""Formats to try for any extension: ImageNet itself has a PNG named .JPEG. The list is closed,
because other plugins of Pillow start programs."""

EXTENSIONS: Final = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "jp2", "j2k", "png", "gif", "bmp", "dib", "webp"}
) | frozenset({"tif", "tiff", "pbm", "pgm", "ppm", "pnm"})
"""Last components of the extensions of images."""


def is_image(ext: str) -> bool:
    """Whether a part with this extension is an image: ``jpg`` and ``seg.png``, but not ``json``."""
    return ext.rpartition(".")[2].lower() in EXTENSIONS


class Role(NamedTuple):
    """The role of a part in its sample, regardless of the image format."""

    name: str
    image: bool


def role(ext: str) -> Role:
    """Return the role: equal for ``jpg`` and ``png``, different for ``seg.png`` and ``json``."""
    return Role(ext.rpartition(".")[0], True) if is_image(ext) else Role(ext, False)


Array = np.ndarray[Any, Any]

# For Pillow's modes without colour: the mode to convert to, and the dtype.
_GREY: Final = {
    **dict.fromkeys(("1", "L", "LA", "La"), ("L", "uint8")),
    "I": ("I", "int32"),
    "F": ("F", "float32"),
}
_COLOUR: Final = frozenset(
    {"P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", "HSV"}
)
_BYTE_MODES: Final = ("1", "L", "P")
"""Pillow keeps these in one byte a pixel, 16-bit grey in two, and everything else in four."""

_KEPT_BYTES: Final = 16 << 20
_SILENT: Final = r"larder\.samples\.pillow\."

_PHOTOMETRIC, _BITS, _SAMPLE_FORMAT = 262, 258, 339  # tags of TIFF 6.0


class BadImageError(Exception):
    """An image that is refused; the message is a reason, as a clause about "it"."""


class NotStoredError(BadImageError):
    """An image that can be decoded, but not be stored in the requested format."""


_SAYING: Final = (BadImageError, OSError, SyntaxError, ValueError)
"""Errors of Pillow whose texts are clear without the names of the errors."""

_SHOWN_CHARACTERS: Final = 300


class Form(NamedTuple):
    """The shape and dtype of an image's array."""

    height: int
    width: int
    channels: int
    dtype: str

    @property
    def bytes(self) -> int:
        return math.prod((self.height, self.width, self.channels)) * np.dtype(self.dtype).itemsize


@contextmanager
def decoding(where: str, hint: str, what: str = "the image cannot be decoded") -> Iterator[None]:
    """Turn a decoder's errors into ``sample.undecodable``, with ``what`` and the reason.

    Errors of stores pass.
    """
    try:
        yield
    except (LarderError, MemoryError):
        raise
    except ImportError as error:
        raise failed_import(error, where) from error
    except Exception as error:
        # Any exception: on bad data, Pillow's plugins raise struct.error, IndexError and others.
        if limit := limit_error(error, where):
            raise limit from error
        what = "the image cannot be stored" if isinstance(error, NotStoredError) else what
        message = f"{what}: {_reason(error)}"
        raise ObjectError("sample.undecodable", message, where=where, hint=hint) from error


def open_image(data: bytes | IO[bytes], max_pixels: int = MAX_PIXELS) -> Image.Image:
    """Read the header of an image; a seekable file is read again when it is loaded."""
    from larder.samples.pillow import Image, UnidentifiedImageError

    if not data:
        raise BadImageError("the file is empty")
    _silence()
    # Opening a GIF or WebP allocates pixels, which only Pillow's own limit can refuse.
    if max_pixels > 2 * (Image.MAX_IMAGE_PIXELS or 0):
        Image.MAX_IMAGE_PIXELS = max_pixels  # a setting of Larder's copy, never lowered
    try:
        file = io.BytesIO(data) if isinstance(data, bytes) else data
        image = Image.open(file, formats=FORMATS)
    except Image.DecompressionBombError:
        raise _too_many(max_pixels) from None
    except UnidentifiedImageError:
        raise BadImageError("no image format is recognised") from None
    check_pixels(image.size, max_pixels)
    return image


def check_pixels(size: tuple[int, int], max_pixels: int) -> None:
    """Refuse an image of more pixels than ``images.max_pixels``."""
    if math.prod(size) > max_pixels:
        raise _too_many(max_pixels)


def form_of(image: Image.Image, *, mask: bool = False) -> Form:
    """Return the form of an image's array; refuse a mask if Pillow changes its elements."""
    mode, dtype = kept_mode(image.mode, mask=mask)
    if not mode:
        raise BadImageError(f"Pillow's mode {image.mode} has no array")
    if fault := _tiff_fault(image) or (_mask_fault(image) if mask else ""):
        raise BadImageError(fault)
    width, height = image.size
    form = Form(height, width, 3 if mode == "RGB" else 1, dtype)
    if not form.bytes:
        raise BadImageError("it has no pixels")
    return form


def loading_bytes(image: Image.Image) -> int:
    """Return the memory that Pillow needs to load an image, measured for each format."""
    bands = len(image.getbands())
    bytes_per_pixel = 2 if image.mode.startswith("I;16") else 1 if image.mode in _BYTE_MODES else 4
    if image.format == "WEBP":
        bytes_per_pixel += 12  # its canvas, the previous frame's canvas, and a copy
    elif image.format == "JPEG2000":
        bytes_per_pixel += -(-11 * bands // 2)
    elif image.info.get("progressive"):
        bytes_per_pixel += 2 * bands  # all coefficients of a JPEG
    return math.prod(image.size) * bytes_per_pixel


def load(image: Image.Image) -> None:
    image.load()
    if _tiff_tag(image, _BITS, 1) == 32 and _tiff_tag(image, _SAMPLE_FORMAT, 1) == 1:
        lowest, _ = cast("tuple[float, float]", image.getextrema())
        if lowest < 0:
            raise BadImageError("an element is above 2,147,483,647")


@contextmanager
def discarding(image: Image.Image) -> Iterator[None]:
    """Free the memory of an image at the end of a ``with`` block, before another load.

    Pillow allocates blocks of 16 MiB, which glibc would keep for the thread that freed them.
    """
    size_bytes = loading_bytes(image)
    try:
        yield
    finally:
        image.close()
        if size_bytes >= _KEPT_BYTES:
            give_back_memory()


def kept_mode(mode: str, *, mask: bool) -> tuple[str, str]:
    """Return the mode to convert to and the dtype; both empty for an unsupported mode."""
    if mask and mode in ("1", "P"):
        return mode, "uint8"
    if mode.startswith("I;16"):
        return mode, "uint16"
    return _GREY.get(mode, ("RGB", "uint8") if mode in _COLOUR else ("", ""))


def _mask_fault(image: Image.Image) -> str:
    """Return the reason why loading would change a mask's elements; empty if it would not."""
    for codec, _, _, options in getattr(image, "tile", ()):
        stored, *more = options if isinstance(options, tuple) else (options,)
        scaled = codec.startswith("ppm") and more[-1] != (65_535 if image.mode == "I" else 255)
        scaled = scaled or str(stored).startswith(("L;2", "L;4"))
        cut = ";16" in str(stored) and not image.mode.startswith("I")
        if scaled or cut or image.mode == "PA":
            return "a mask keeps its elements with a palette, or as grey of 8 or 16 bits"
    return ""


def _tiff_fault(image: Image.Image) -> str:
    """Return the reason why loading would change a TIFF's elements; empty if it would not."""
    bits, kind = _tiff_tag(image, _BITS, 1), _tiff_tag(image, _SAMPLE_FORMAT, 1)
    if bits == 8 and kind == 2:
        return "its elements are bytes with a sign"
    if bits == 16 and _tiff_tag(image, _PHOTOMETRIC, 1) == 0:
        return "it is 16-bit grey in which zero is white"
    return ""


def _tiff_tag(image: Image.Image, tag: int, default: int) -> int:
    """Return the first value of a tag; -1 if the image is not a TIFF."""
    tags = getattr(image, "tag_v2", None)
    if image.format != "TIFF" or tags is None:
        return -1
    value = tags.get(tag, default)
    return int(value[0] if isinstance(value, tuple) else value)


def _too_many(max_pixels: int) -> BadImageError:
    return BadImageError(f"it has more than {max_pixels:,} pixels, the limit in images.max_pixels")


def _silence() -> None:
    """Hide Pillow's warnings (about odd tags or many pixels) from the user.

    ``catch_warnings`` is not used, because it restores the filters of all threads, in any order.
    """
    front = warnings.filters[0] if warnings.filters else None
    if front is None or getattr(front[3], "pattern", None) != _SILENT:
        warnings.filterwarnings("ignore", module=_SILENT)


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:_SHOWN_CHARACTERS]
    if isinstance(error, _SAYING) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
