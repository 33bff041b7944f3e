"""The framing of TFRecord files.

A record is its length (u64), the masked CRC-32C of these eight bytes, the data, and the masked
CRC-32C of the data; all numbers are little-endian. Format: "TFRecord and tf.train.Example" in
TensorFlow's documentation; ``tensorflow/core/lib/hash/crc32c.h`` for the mask.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache

import google_crc32c
import numpy as np

HEADER_BYTES = 12
FOOTER_BYTES = 4

FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
"""What a record takes beside its data."""

_MASK = 0xA282_EAD8

_LENGTH = struct.Struct("<Q")
_CHECKSUM = struct.Struct("<I")


@lru_cache(4096)
def record_header(size_bytes: int) -> bytes:
    """What precedes data of this length."""
    length = _LENGTH.pack(size_bytes)
    return length + masked(google_crc32c.value(length))


def masked(crc32c: int) -> bytes:
    """A checksum as TFRecord files contain it."""
    rotated = crc32c >> 15 | crc32c << 17 & 0xFFFF_FFFF
    return _CHECKSUM.pack(rotated + _MASK & 0xFFFF_FFFF)


def all_masked(checksums: Sequence[int]) -> list[bytes]:
    numbers = np.array(checksums, np.uint32)
    words = (numbers >> 15 | numbers << 17) + np.uint32(_MASK)
    return [
        word for (word,) in struct.iter_unpack(f"{FOOTER_BYTES}s", words.astype("<u4").tobytes())
    ]
