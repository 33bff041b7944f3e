"""The decoder ``bytes``: a part as it is."""

from __future__ import annotations

import numpy as np

from larder.samples.decoders.base import Array, Decoder


def _decode(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


BYTES = Decoder("bytes", _decode, expands=1)
"""uint8 of shape (bytes,). For images that a decoded cache is to keep as files."""
