"""Seeded hashes of sample keys: the same on every machine, and independent of each other."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt


def seeded_hashes(seed: int, purpose: bytes, texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Hash strings: blake2b of their UTF-8 with 8 bytes of output, as big-endian numbers.

    The key is the sha256 of the seed's decimal digits. The purpose, at most 16 bytes, is blake2b's
    ``person``: equal seeds for different purposes give unrelated hashes.
    """
    key = hashlib.sha256(str(seed).encode()).digest()
    empty = hashlib.blake2b(digest_size=8, key=key, person=purpose)
    digests: list[bytes] = []
    for text in texts:
        hasher = empty.copy()  # faster by a third than setting up the key each time
        hasher.update(text.encode())
        digests.append(hasher.digest())
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
