"""The decoders that come with Larder: ``bytes``, ``npy``, ``text`` and ``wav``."""

from __future__ import annotations

import io
import math
import struct
from typing import Final

import numpy as np

from larder.samples.decoders.base import Array, Decoder

_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def _npy(data: bytes) -> Array:
    """The format of https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html.

    Only the header is left to numpy: it allocates what a header claims before it looks for the
    elements.
    """
    file = io.BytesIO(data)
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    shape, by_columns, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise ValueError("it has Python objects, which would have to be unpickled")
    size_bytes, wanted = len(data) - file.tell(), math.prod(shape) * dtype.itemsize
    if size_bytes != wanted:
        raise ValueError(f"it has {size_bytes} bytes of elements instead of {wanted}")
    flat = np.frombuffer(data, dtype, offset=file.tell()) if wanted else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


NPY = Decoder("npy", _npy, expands=2)
"""The array, of any shape."""


def _raw(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


BYTES = Decoder("bytes", _raw, expands=1)
"""uint8 of shape (bytes,). For images that a decoded cache is to keep as files."""


def _text(data: bytes) -> Array:
    data.decode()
    return np.frombuffer(data, np.uint8)


TEXT = Decoder("text", _text, expands=5)
"""uint8 of shape (bytes,): the text in UTF-8, as it is."""


_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_DTYPES: Final = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "u1",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
_FMT = struct.Struct("<HHIIHH")


def _wav(data: bytes) -> dict[str, Array]:
    """Uncompressed audio in a RIFF file.

    The chunks are those of Microsoft's and IBM's "Multimedia Programming Interface and Data
    Specifications 1.0" and of WAVEFORMATEXTENSIBLE. Not the module ``wave``: Python 3.11's refuses
    files that 3.12's accepts, none reads floating point, and a file cut short is not told.
    """
    head, body = _wav_chunks(data)
    if len(head) < _FMT.size:
        raise ValueError("its chunk fmt is too short")
    tag, channels, rate, _, frame_bytes, bits = _FMT.unpack_from(head)
    if tag == _EXTENSIBLE and len(head) >= 26:
        (tag,) = struct.unpack_from("<H", head, 24)
    dtype = _DTYPES.get((tag, bits))
    if dtype is None:
        raise ValueError(f"its encoding, format {tag} of {bits} bits, is not supported")
    if not channels or frame_bytes != channels * bits // 8 or len(body) % frame_bytes:
        raise ValueError(f"{len(body)} bytes are no whole frames of {channels} channels")
    values = np.frombuffer(body, dtype)
    if bits == 24:
        values = _of_24_bits(values)
    return {"": values.reshape(-1, channels), "rate": np.asarray(rate, np.int64)}


def _wav_chunks(data: bytes) -> tuple[bytes, memoryview]:
    """The contents of the chunks ``fmt`` and ``data``."""
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("it is no WAV file")
    head, at = b"", 12
    while at + 8 <= len(data):
        name, length = struct.unpack_from("<4sI", data, at)
        at += 8
        if name == b"data":
            if at + length > len(data):
                raise ValueError(f"it has {len(data) - at} bytes of audio instead of {length}")
            return head, memoryview(data)[at : at + length]
        if name == b"fmt ":
            head = data[at : at + length]
        at += length + length % 2
    raise ValueError("it has no audio")


def _of_24_bits(values: Array) -> Array:
    wide = np.zeros((len(values) // 3, 4), np.uint8)
    wide[:, 1:] = values.reshape(-1, 3)
    return wide.view("<i4").reshape(-1) >> 8


WAV = Decoder("wav", _wav, fields=("", "rate"), expands=4)
"""(frames, channels), of uint8, int16, int32, float32 or float64 as in the file; 24 bits become
int32 with the same values. The second field, ``rate``, has the frames per second: int64."""
