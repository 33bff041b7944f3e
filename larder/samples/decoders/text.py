"""The decoder ``text``: UTF-8, checked."""

from __future__ import annotations

import numpy as np

from larder.samples.decoders.base import Array, Decoder


def _decode(data: bytes) -> Array:
    data.decode()
    return np.frombuffer(data, np.uint8)


TEXT = Decoder("text", _decode, expands=5)
"""uint8 of shape (bytes,): the text in UTF-8, as it is."""
