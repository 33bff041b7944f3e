"""Real data to try Larder with: ``python -m larder.demo.digits DIRECTORY`` writes it.

The digits are next to this module, in digits.txt.gz.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0.
"""

from __future__ import annotations

import gzip
import os
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path

from larder.errors import ConfigError
from larder.units import format_count

DIGITS = 1797
"""Images in the digits dataset."""

_SIDE = 8
_WHITE = 16  # the values are numbers of set pixels in blocks of 4 by 4


def write_digits(directory: Path) -> int:
    """Write the 1,797 handwritten digits of UCI's test set as ``CLASS/digit-0000.png``.

    The files are 8 by 8 pixels, 8-bit greyscale (values 0..16 scaled to 0..255), and the same bytes
    on every machine. Existing files are left alone, so a second call does nothing, or completes a
    call that was killed. Returns the number of files written.
    """
    if _digits_in(directory) == DIGITS:
        return 0
    try:
        return sum(
            _write_digit(directory / label / f"digit-{index:04d}.png", _png(pixels), directory)
            for index, (label, pixels) in enumerate(_digits())
        )
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise ConfigError(
            "config.path", f"cannot be written: {reason}", where=str(error.filename or directory)
        ) from None


def _digits() -> Iterator[tuple[str, list[int]]]:
    """Yield the class of each digit and its 64 pixels, 0 to 16, by rows."""
    packed = resources.files(__package__).joinpath("digits.txt.gz").read_bytes()
    for line in gzip.decompress(packed).decode("ascii").splitlines():
        if not line.startswith("#"):
            label, pixels = line.split()
            yield label, [int(pixel, _WHITE + 1) for pixel in pixels]


def _digits_in(directory: Path) -> int:
    size_bytes = len(_png([0] * _SIDE * _SIDE))
    files = directory.glob("[0-9]/digit-[0-9][0-9][0-9][0-9].png")
    return sum(path.stat().st_size == size_bytes for path in files)


def _write_digit(path: Path, content: bytes, directory: Path) -> bool:
    if path.exists() and path.stat().st_size == len(content):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    # Next to the source, not in it: no listing of the source shows a partly written file.
    partial = directory.parent / f".{directory.name}.{os.getpid()}.partial"
    partial.write_bytes(content)
    partial.replace(path)
    return True


def _png(pixels: Sequence[int]) -> bytes:
    """Make an uncompressed PNG of 64 values 0..16; no library's version changes its bytes.

    Format: https://www.w3.org/TR/png-3/ and, for the stored block, RFC 1951 section 3.2.4.
    """
    grey = bytes(round(value * 255 / _WHITE) for value in pixels)
    rows = b"".join(b"\0" + grey[at : at + _SIDE] for at in range(0, len(grey), _SIDE))
    stored = b"\x01" + struct.pack("<HH", len(rows), len(rows) ^ 0xFFFF) + rows
    data = b"\x78\x01" + stored + struct.pack(">I", zlib.adler32(rows))
    header = struct.pack(">IIBBBBB", _SIDE, _SIDE, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", data), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks)


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(kind + content))
    return struct.pack(">I", len(content)) + kind + content + checksum


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or arguments[0].startswith("-"):
        sys.stderr.write("usage: python -m larder.demo.digits DIRECTORY\n")
        return 2
    try:
        written = write_digits(Path(arguments[0]))
    except ConfigError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        return error.exit_status
    sys.stdout.write(f"{format_count(written, 'file')} written to {arguments[0]}\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
