"""Functions for ``map`` of a loader that vary images at random."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from larder.cache.fields import field_name
from larder.readers.batch_decoding import part_ext
from larder.readers.image_decoding import MOST_PIXELS, decode_piece, load_decoders
from larder.readers.schedule import invalid, whole
from larder.samples.image_parts import is_image
from larder.samples.pixels import Box, scaled

_TRIES = 10
_LOG_RATIO = math.log(4 / 3)
"""Logarithm of the largest ratio of width to height, 4 to 3; the smallest is 3 to 4."""


@dataclass(frozen=True, slots=True)
class RandomResizedCrop:
    """A random piece of an image, scaled to a square, and mirrored half the time.

    Training on ImageNet uses such pieces (Szegedy et al., "Going deeper with convolutions", 2014).
    As in torchvision, a piece has 8 to 100 percent of the image, at 3:4 to 4:3. The image is a
    file, as without ``decode``, or an array. A JPEG is decoded at the smallest scale with enough
    pixels for the piece. The result is uint8 of shape (size, size, 3). A file's result has the name
    of decoded images, such as ``image``; an array keeps its name. Needs the extra ``jpeg``.

    Args:
        size: Pixels of a side.
        part: The name of the value, such as ``left.jpg``; None for the only image of the sample.
        scale: The least and the largest fraction of the image's area.
        mirror: Probability that the piece is mirrored, left to right.
    """

    size: int
    part: str | None = None
    scale: tuple[float, float] = (0.08, 1.0)
    mirror: float = 0.5

    def __post_init__(self) -> None:
        load_decoders()
        whole("size", self.size, 1, MOST_PIXELS)
        least, most = self.scale
        if not 0 < least <= most <= 1:
            raise invalid(f"{least} to {most} is no part of an area", "scale", "write (0.08, 1.0)")

    def __call__(self, sample: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        """Return a sample with a random piece in place of its image.

        Raises:
            ConfigError: ``config.invalid_value``: the sample has no such part, or several images.
            ObjectError: ``sample.undecodable``.
        """
        part = self._part(sample)
        value = sample[part]

        def choose(width: int, height: int) -> Box:
            return self._box(width, height, rng)

        if isinstance(value, np.ndarray) and value.ndim == 3:
            height, width, _ = value.shape
            pixels, name = scaled(value, self.size, choose(width, height)), part
        else:
            where = f"{sample.get('key', 'sample')}.{part}"
            pixels = decode_piece(value, where, self.size, choose)
            name = field_name(part_ext(part), "decoded")
        if rng.random() < self.mirror:
            pixels = pixels[:, ::-1]
        others = {other: value for other, value in sample.items() if other != part}
        return {name: np.ascontiguousarray(pixels), **others}

    def _part(self, sample: Mapping[str, Any]) -> str:
        parts = [name for name in sample if name.partition(".")[0] == "image" or is_image(name)]
        if self.part is not None:
            parts = [self.part] if self.part in sample else []
        if len(parts) != 1:
            message = f"of a sample, {', '.join(parts) or 'nothing'} could be cut"
            raise invalid(message, "part", "name the one to cut, such as part='jpg'")
        return parts[0]

    def _box(self, width: int, height: int, rng: np.random.Generator) -> Box:
        for _ in range(_TRIES):
            area = width * height * rng.uniform(*self.scale)
            ratio = math.exp(rng.uniform(-_LOG_RATIO, _LOG_RATIO))
            across, down = math.sqrt(area * ratio), math.sqrt(area / ratio)
            if across <= width and down <= height:
                left, top = rng.uniform(0, width - across), rng.uniform(0, height - down)
                return left, top, left + across, top + down
        ratio = math.exp(np.clip(math.log(width / height), -_LOG_RATIO, _LOG_RATIO))  # no try fits
        across, down = min(width, height * ratio), min(height, width / ratio)
        left, top = (width - across) / 2, (height - down) / 2
        return left, top, left + across, top + down
