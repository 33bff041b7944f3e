"""Canonical JSON, sha256, and the CRC32C of bytes in parts. Imports no pyarrow: readers need it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

_POLYNOMIAL = 0x82F63B78  # reflected
_ONE = 1 << 31
_BYTE = 1 << 23  # x**8


def canonical_json(value: Any) -> bytes:
    """Return JSON with sorted keys, no white space, UTF-8, no NaN: a unique form of every value."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return text.encode()


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    return hashlib.sha256(data).hexdigest()


def format_crc32c(value: int) -> str:
    """Return ``crc32c:`` and eight hex digits."""
    return f"crc32c:{value:08x}"


def combined_crc32c(parts: Iterable[tuple[int, int]]) -> int:
    """Combine the CRC32C of parts in order, given the CRC32C and the length in bytes of each.

    With polynomials over GF(2), CRC(AB) is CRC(A) times x to the power of the number of bits of B,
    plus CRC(B). zlib's ``crc32_combine`` uses the same method; the polynomial is Castagnoli's (RFC
    3720, appendix B.4).
    """
    crc = 0
    for part_crc, size_bytes in parts:
        crc = _times(_shift(size_bytes), crc) ^ part_crc
    return crc


@lru_cache(maxsize=1024)
def _shift(size_bytes: int) -> int:
    """Return x to the power of 8 times a number of bytes, modulo the polynomial."""
    power, result = _BYTE, _ONE
    while size_bytes:
        if size_bytes & 1:
            result = _times(power, result)
        power = _times(power, power)
        size_bytes >>= 1
    return result


def _times(one: int, other: int) -> int:
    """Multiply modulo the polynomial; the highest bit is the coefficient of 1."""
    product = 0
    for place in range(31, -1, -1):
        if one >> place & 1:
            product ^= other
        other = other >> 1 ^ (_POLYNOMIAL if other & 1 else 0)
    return product
