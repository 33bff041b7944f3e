"""The transform of ``shards.images``: resize an image and encode it again.

The bytes depend on the image, the options and the codec libraries. So the bytes are reproducible
only with the same versions of these libraries, which are part of segment IDs.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from contextlib import nullcontext
from functools import cache
from typing import IO, TYPE_CHECKING, Any, Final

from larder.budgets import ByteBudget
from larder.config.shape import Transform
from larder.samples.image_parts import (
    NotStoredError,
    decoding,
    discarding,
    form_of,
    load,
    loading_bytes,
    open_image,
    role,
)
from larder.samples.pixels import plain, resized

if TYPE_CHECKING:
    from PIL import Image


_HINT: Final = "fix or exclude it, or set on_bad_sample: skip"

_ORIENTATION: Final = 0x0112
_REDUCING_GAP: Final = 3
"""A large JPEG is decoded at a half, a quarter or an eighth of its size. The decoded image has at
least this many times the result's size, so that resizing causes no visible loss."""

_KEPT_FORMATS: Final = {"JPEG": "JPEG", "MPO": "JPEG", "PNG": "PNG"}
_RULES: Final = "2"
"""The version of conversion and resizing: change it when the bytes change."""

_JPEG_SIDE: Final = 65_500
"""Most pixels of a side that libjpeg can write."""

_PIXEL_BYTES: Final = 12
"""Memory for a pixel of an enlarged image: the result, its half-resized form and its file."""


@cache
def codec_versions() -> Mapping[str, str]:
    """Return the versions of all libraries and rules that affect the bytes, by name."""
    import PIL
    from PIL import features

    jpeg = "libjpeg-turbo" if features.check_feature("libjpeg_turbo") else "libjpeg"
    jpeg_version = features.version_feature("libjpeg_turbo") or features.version_codec("jpg")
    zlib_ng = features.version("zlib_ng") if features.check("zlib_ng") else None
    return {
        "rules": _RULES,
        "pillow": PIL.__version__,
        "jpeg": f"{jpeg} {jpeg_version}",
        "zlib": f"zlib-ng {zlib_ng}" if zlib_ng else f"zlib {features.version_codec('zlib')}",
    }


def target_size(size: tuple[int, int], transform: Transform) -> tuple[int, int]:
    """Return width and height of the result; ``transform.resize`` gives the shorter side."""
    shorter, longer = min(size), max(size)
    wanted = transform.resize
    if wanted is None or wanted == shorter or (wanted > shorter and not transform.enlarge):
        return size
    other = max(1, (2 * longer * wanted + shorter) // (2 * shorter))  # rounded
    return (wanted, other) if size[0] == shorter else (other, wanted)


def encode_again(
    ext: str,
    data: bytes | IO[bytes],
    transform: Transform,
    *,
    where: str,
    max_pixels: int,
    budget: ByteBudget | None = None,
) -> bytes:
    """Resize an image and encode it again; the extension tells whether it is a mask."""
    with decoding(where, _HINT), open_image(data, max_pixels) as image:
        mask = role(ext).name in transform.masks
        form = form_of(image, mask=mask)
        format_ = _format(image, transform, mask=mask)
        if form.dtype not in ("uint8", "uint16") or (format_, form.dtype) == ("JPEG", "uint16"):
            raise NotStoredError(f"{format_} does not hold elements of {form.dtype}")
        size = _checked_size(image.size, transform, format_, max_pixels)
        if not mask and image.format in ("JPEG", "MPO"):
            image.draft(image.mode, (size[0] * _REDUCING_GAP, size[1] * _REDUCING_GAP))
        needed_bytes = transform_bytes(image, transform)
        with budget.holding(needed_bytes) if budget else nullcontext(), discarding(image):
            load(image)
            kept = _kept_metadata(image)  # for a PNG, Pillow would load it now
            whole = plain(image, mask=mask, alpha=format_ == "PNG")
            with resized(whole, size, mask=mask, bicubic=True) as result, discarding(result):
                return _encoded(result, format_, transform, kept)


def transform_bytes(image: Image.Image, transform: Transform) -> int:
    """Return the bytes of memory for transforming an image."""
    pixels, made = math.prod(image.size), math.prod(target_size(image.size, transform))
    return 2 * loading_bytes(image) + (_PIXEL_BYTES * made if made > pixels else 0)


def _checked_size(
    size: tuple[int, int], transform: Transform, format_: str, max_pixels: int
) -> tuple[int, int]:
    """Return the size of the result; refuse a size that readers or the format refuse."""
    width, height = target_size(size, transform)
    if width * height > max_pixels:
        limit = f"more than {max_pixels:,} pixels, the limit in images.max_pixels"
        raise NotStoredError(f"resized to {width:,} x {height:,} it has {limit}")
    if format_ == "JPEG" and max(width, height) > _JPEG_SIDE:
        raise NotStoredError(f"a side of {max(width, height):,} pixels is too long for a JPEG")
    return width, height


def _format(image: Image.Image, transform: Transform, *, mask: bool) -> str:
    """Return Pillow's name of the result's format."""
    if mask:
        return "PNG"
    if transform.format != "keep":
        return transform.format.upper()
    kept = _KEPT_FORMATS.get(image.format or "")
    if kept is None:
        raise NotStoredError(
            f"{image.format} is not written: set shards.images.format: jpeg or png"
        )
    return kept


def _kept_metadata(image: Image.Image) -> dict[str, Any]:
    """Return the orientation (not for TIFF: Pillow applies it) and a profile that still applies."""
    from larder.samples.pillow import Image

    metadata: dict[str, Any] = {}
    orientation = 1 if image.format == "TIFF" else _orientation(image)
    if orientation > 1:
        exif = Image.Exif()
        exif[_ORIENTATION] = orientation
        metadata["exif"] = exif.tobytes()
    profile = image.info.get("icc_profile")
    if profile and image.mode not in ("CMYK", "YCbCr", "LAB"):
        metadata["icc_profile"] = profile
    return metadata


def _orientation(image: Image.Image) -> int:
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except Exception:  # noqa: BLE001 - Pillow raises any error for damaged EXIF data
        return 1
    return orientation if isinstance(orientation, int) and 1 <= orientation <= 8 else 1


def _encoded(
    result: Image.Image, format_: str, transform: Transform, kept: Mapping[str, Any]
) -> bytes:
    """Encode the result, with the kept metadata and nothing else."""
    options = dict(kept)
    if format_ == "JPEG":
        options |= {"quality": transform.quality, "subsampling": "4:2:0"}
    if result.mode == "P":  # Pillow writes as few bits as the palette needs, also of larger numbers
        palette = result.getpalette() or []
        if any(result.histogram()[len(palette) // 3 :]):
            result.putpalette([*palette, *bytes(768 - len(palette))])
    result.info = {}
    out = io.BytesIO()
    result.save(out, format_, **options)
    return out.getvalue()
