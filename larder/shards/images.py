"""Checks with Pillow whether an image can be read, before it goes into a shard."""

from __future__ import annotations

import io
import warnings
from typing import IO, Literal, get_args

from larder.errors import LarderError, ObjectError
from larder.samples.images import FORMATS, is_image

__all__ = ["Validation", "check_image", "is_weaker"]

Validation = Literal["none", "header", "decode"]
"""How images are checked: not at all, by format and size, or by decoding them."""

_SILENT = r"PIL\."

_STRENGTHS: tuple[str, ...] = get_args(Validation)
"""From the weakest."""


def is_weaker(before: str, now: str) -> bool:
    """Whether images that were checked in one way have to be checked again.

    Args:
        before: How they were checked, one of `Validation`.
        now: How they are to be checked.
    """
    return _STRENGTHS.index(before) < _STRENGTHS.index(now)


def check_image(ext: str, data: bytes | IO[bytes], mode: Validation, *, where: str) -> None:
    """Check a part of a sample; a part without the extension of an image is accepted.

    ``header`` finds files that are not images, and images truncated within the header. ``decode``
    decodes the first frame, and finds truncated images and others that training could not decode.
    Images of more than 178,956,970 pixels, Pillow's limit against decompression bombs, are refused.

    Args:
        ext: Extension of the part, without the first dot.
        data: The content, or a seekable file of it.
        mode: How to check.
        where: Key of the object, for the error.

    Raises:
        ObjectError: ``sample.undecodable``.
    """
    if mode == "none" or not is_image(ext):
        return
    if not data:
        raise _undecodable("the file is empty", where)
    try:
        _read(io.BytesIO(data) if isinstance(data, bytes) else data, mode)
    except (LarderError, MemoryError):
        raise
    except Exception as error:
        # Any exception: on bad data, Pillow's plugins raise struct.error, IndexError and others.
        raise _undecodable(_reason(error), where) from error


def _read(file: IO[bytes], mode: Validation) -> None:
    from PIL import Image

    _silence()
    # Opening an image refuses one without a width, a height or a mode.
    with Image.open(file, formats=FORMATS) as image:
        if mode == "decode":
            image.load()


def _silence() -> None:
    """Hide Pillow's warnings (about odd tags or many pixels) from the user.

    Not with ``catch_warnings``, which restores the filters of all threads, in any order.
    """
    front = warnings.filters[0] if warnings.filters else None
    if front is None or getattr(front[3], "pattern", None) != _SILENT:
        warnings.filterwarnings("ignore", module=_SILENT)


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "no image format is recognised"
    return str(error) or type(error).__name__


def _undecodable(reason: str, where: str) -> ObjectError:
    return ObjectError(
        "sample.undecodable",
        f"the image cannot be decoded: {reason}",
        where=where,
        hint="fix or exclude it, or set on_bad_sample: skip",
    )
