"""Which parts of a sample are images, and as what they are tried. Pure."""

from __future__ import annotations

from typing import Final, NamedTuple

__all__ = ["EXTENSIONS", "FORMATS", "Role", "is_image", "role"]

FORMATS: Final = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000")
"""What is tried, whatever the extension says: ImageNet itself has a PNG named .JPEG. A closed
list, as other plugins of Pillow start programs."""

EXTENSIONS: Final = frozenset(
    {"jpg", "jpeg", "jpe", "jfif", "jp2", "j2k", "png", "gif", "bmp", "dib", "webp"}
) | frozenset({"tif", "tiff", "pbm", "pgm", "ppm", "pnm"})
"""The parts that are images, by what follows the last dot of their extension."""


def is_image(ext: str) -> bool:
    """Whether a part of that extension is an image: ``jpg`` and ``seg.png`` are, ``json`` not."""
    return ext.rpartition(".")[2].lower() in EXTENSIONS


class Role(NamedTuple):
    """What a part is to its sample, whatever the format of its image.

    Attributes:
        name: The extension; of an image what stands before the format, mostly nothing.
        image: Whether it is an image.
    """

    name: str
    image: bool


def role(ext: str) -> Role:
    """``jpg`` and ``png`` have one role, ``seg.png`` another, ``json`` a third."""
    return Role(ext.rpartition(".")[0], True) if is_image(ext) else Role(ext, False)
