"""The decoder ``npy``: an array as ``numpy.save`` writes it.

The format is that of https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html. Only
the header is left to numpy: it allocates what a header claims before it looks for the elements.
"""

from __future__ import annotations

import io
import math

import numpy as np

from larder.samples.decoders.base import Array, Decoder

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _decode(data: bytes) -> Array:
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    shape, by_columns, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it has Python objects, which would have to be unpickled")
    found, wanted = len(data) - file.tell(), math.prod(shape) * dtype.itemsize
    if found != wanted:
        raise ValueError(f"it has {found} bytes of elements instead of {wanted}")
    flat = np.frombuffer(data, dtype, offset=file.tell()) if wanted else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


NPY = Decoder("npy", _decode, expands=2)
"""The array, of any shape."""
