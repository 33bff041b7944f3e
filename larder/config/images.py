"""What images a segment may have, and how they are transformed: part of the shape of its shards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from larder.config.decoders import DecoderUse

MAX_PIXELS: Final = 178_956_970
"""The default of ``images.max_pixels``: Pillow's limit against decompression bombs."""


@dataclass(frozen=True, slots=True)
class Transform:
    """``shards.images``. Options at their default are left out of documents and identities.

    Attributes:
        resize: Length of the shorter side, pixels; None to keep the size.
        format: ``keep``, ``jpeg`` or ``png``.
        quality: Quality of JPEGs, 1 to 100.
        masks: Extensions of parts whose pixels are numbers, not colours.
        codecs: By name, the versions of the libraries that encode, which decide about the bytes;
            None if they are not known yet.
    """

    resize: int | None = None
    enlarge: bool = False
    format: str = "keep"
    quality: int = 90
    masks: tuple[str, ...] = ()
    codecs: Mapping[str, str] | None = None

    def options(self) -> Transform:
        """The same without the codecs: what is configured."""
        return replace(self, codecs=None)


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """What images a segment may have, how they are stored, and what decodes other parts.

    Attributes:
        transform: ``shards.images``; None to store images as they are.
        decoders: ``decoding``, sorted by extension.
    """

    max_pixels: int = MAX_PIXELS
    transform: Transform | None = None
    decoders: tuple[DecoderUse, ...] = ()
