"""Images of kinds that Pillow does not write, byte by byte, so that their pixels are known."""

from __future__ import annotations

import io
import struct
import zlib
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, Any]

_SHORT, _LONG = 3, 4


def png_chunk(name: bytes, data: bytes) -> bytes:
    """A chunk of a PNG."""
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png_file(
    rows: list[bytes], width: int, *, depth: int, colour: int, chunks: bytes = b""
) -> bytes:
    """A PNG of rows of packed samples; ``colour`` is the colour type of its specification."""
    header = struct.pack(">IIBBBBB", width, len(rows), depth, colour, 0, 0, 0)
    data = zlib.compress(b"".join(b"\0" + row for row in rows))
    return (
        b"\x89PNG\r\n\x1a\n"
        + png_chunk(b"IHDR", header)
        + chunks
        + png_chunk(b"IDAT", data)
        + png_chunk(b"IEND", b"")
    )


def png_of(array: Array, colour: int, chunks: bytes = b"") -> bytes:
    """A PNG of 8 or 16 bits; ``array`` is (height, width) or (height, width, channels)."""
    big = array.astype(array.dtype.newbyteorder(">"))
    depth = 8 * array.dtype.itemsize
    rows = [row.tobytes() for row in big]
    return png_file(rows, array.shape[1], depth=depth, colour=colour, chunks=chunks)


def tiff_file(
    array: Array,
    *,
    photometric: int = 1,
    order: str = "<",
    orientation: int = 1,
    extra: int | None = None,
) -> bytes:
    """An uncompressed TIFF 6.0 of one strip, in either byte order."""
    height, width = array.shape[:2]
    channels = array.shape[2] if array.ndim == 3 else 1
    kind = {"u": 1, "i": 2, "f": 3}[array.dtype.kind]
    data = array.astype(array.dtype.newbyteorder(order)).tobytes()
    tags: list[tuple[int, int, list[int]]] = [
        (256, _LONG, [width]),
        (257, _LONG, [height]),
        (258, _SHORT, [8 * array.dtype.itemsize] * channels),
        (259, _SHORT, [1]),
        (262, _SHORT, [photometric]),
        (273, _LONG, [8]),
        (274, _SHORT, [orientation]),
        (277, _SHORT, [channels]),
        (278, _LONG, [height]),
        (279, _LONG, [len(data)]),
        *([(338, _SHORT, [extra])] if extra is not None else []),
        (339, _SHORT, [kind] * channels),
    ]
    place = 8 + len(data) + len(data) % 2
    beyond = place + 2 + 12 * len(tags) + 4
    entries, values = b"", b""
    for tag, size, numbers in tags:
        packed = struct.pack(order + ("H" if size == _SHORT else "I") * len(numbers), *numbers)
        if len(packed) > 4:
            offset = struct.pack(order + "I", beyond + len(values))
            values, packed = values + packed, offset
        entries += struct.pack(order + "HHI", tag, size, len(numbers)) + packed.ljust(4, b"\0")
    head = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(order + "I", place)
    directory = struct.pack(order + "H", len(tags)) + entries + bytes(4)
    return head + data + bytes(len(data) % 2) + directory + values


def saved(image: Image.Image, format_: str = "PNG", **options: Any) -> bytes:
    """What Pillow writes."""
    out = io.BytesIO()
    image.save(out, format_, **options)
    return out.getvalue()
