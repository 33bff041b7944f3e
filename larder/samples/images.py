"""Which parts of a sample are images, and which formats are tried. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

FORMATS: Final = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""The formats that are tried, whatever the extension: ImageNet itself has a PNG named .JPEG. A
closed list, because other plugins of Pillow start programs."""

EXTENSIONS: Final = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "jp2", "j2k", "png", "gif", "bmp", "dib", "webp"}
) | frozenset({"tif", "tiff", "pbm", "pgm", "ppm", "pnm"})
"""The parts that are images, by the last component of their extension."""


def is_image(ext: str) -> bool:
    """Whether a part with this extension is an image: ``jpg`` and ``seg.png``, but not ``json``."""
    return ext.rpartition(".")[2].lower() in EXTENSIONS


class Role(NamedTuple):
    """The role of a part in its sample, regardless of the image format.

    Attributes:
        name: The extension; for an image without the format, so usually empty.
        image: Whether it is an image.
    """

    name: str
    image: bool


def role(ext: str) -> Role:
    """``jpg`` and ``png`` have the same role, ``seg.png`` another, ``json`` a third."""
    return Role(ext.rpartition(".")[0], True) if is_image(ext) else Role(ext, False)
