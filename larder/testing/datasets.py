"""Data to try Larder without an account: real digits, and images in the layout of ImageNet.

::

    python -m larder.testing.datasets digits data/source/digits
    python -m larder.testing.datasets imagenet --url s3://bucket/prefix --count 3000

The digits are next to this module, in digits.txt.gz; imagenet needs the extra ``prepare``.

E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository, 1998, https://doi.org/10.24432/C50P49, licensed under CC BY 4.0.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from larder.errors import ConfigError, LarderError
from larder.store import Store, open_store
from larder.units import format_bytes, format_count

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

DIGITS = 1797
"""Images in the digits dataset."""

_SIDE = 8
_WHITE = 16  # the values are numbers of set pixels in blocks of 4 by 4
_CANVAS_SIDE = 1536
_UPLOADS = 16
_BATCH = 64


def write_digits(directory: Path) -> int:
    """Write the 1,797 handwritten digits of UCI's test set as ``CLASS/digit-0000.png``.

    The files are 8 by 8 pixels, 8-bit greyscale (values 0..16 scaled to 0..255), and the same
    bytes on every machine. Existing files are left alone, so a second call does nothing, or
    completes a call that was killed.

    Args:
        directory: The source directory to fill; created if it does not exist.

    Returns:
        The number of files written.

    Raises:
        ConfigError: ``config.path``: the directory cannot be written.
    """
    if _digits_there(directory) == DIGITS:
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
    """The class of each digit and its 64 pixels, 0 to 16, by rows."""
    packed = resources.files(__package__).joinpath("digits.txt.gz").read_bytes()
    for line in gzip.decompress(packed).decode("ascii").splitlines():
        if not line.startswith("#"):
            label, pixels = line.split()
            yield label, [int(pixel, _WHITE + 1) for pixel in pixels]


def _digits_there(directory: Path) -> int:
    size_bytes = len(_png([0] * _SIDE * _SIDE))
    files = directory.glob("[0-9]/digit-[0-9][0-9][0-9][0-9].png")
    return sum(path.stat().st_size == size_bytes for path in files)


def _write_digit(path: Path, content: bytes, directory: Path) -> bool:
    if path.exists() and path.stat().st_size == len(content):
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    # Next to the source, not in it: whoever lists it never sees a partly written file.
    partial = directory.parent / f".{directory.name}.{os.getpid()}.partial"
    partial.write_bytes(content)
    partial.replace(path)
    return True


def _png(pixels: Sequence[int]) -> bytes:
    """A PNG of 64 values 0..16, uncompressed: its bytes do not depend on the version of a library.

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


def imagenet_like(count: int, classes: int = 20, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Generate objects in the official layout of ILSVRC 2012, with generated JPEGs.

    One image in ten is for validation. Images have lognormal sizes, most of them 20 to 110 KB.
    The same arguments give the same objects with the same versions of Pillow and NumPy.

    Args:
        count: Total number of images, at least 2.
        classes: Number of folders in ``train/``.
        seed: Seed of the pixels and sizes.

    Yields:
        Key and content: ``train/n01440764/n01440764_1.JPEG``, then
        ``val/ILSVRC2012_val_00000001.JPEG``, finally ``val.txt`` with a line
        ``ILSVRC2012_val_00000001.JPEG n01440764`` for each image of ``val/``.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    canvas = _canvas(random)
    names = [f"n{1440764 + 2741 * index:08d}" for index in range(classes)]
    validation = max(1, count // 10)
    for index in range(count - validation):
        name = names[index * classes // (count - validation)]
        yield f"train/{name}/{name}_{index + 1}.JPEG", _jpeg(canvas, random)
    lines = []
    for index in range(validation):
        name = f"ILSVRC2012_val_{index + 1:08d}.JPEG"
        lines.append(f"{name} {names[random.integers(classes)]}\n")
        yield f"val/{name}", _jpeg(canvas, random)
    yield "val.txt", "".join(lines).encode()


def _canvas(random: np.random.Generator) -> Image.Image:
    """Noise at several resolutions, to cut images from: compresses about as well as photographs."""
    import numpy as np
    from PIL import Image

    side = _CANVAS_SIDE
    total = np.zeros((side, side, 3), dtype=np.float32)
    for coarse, amplitude in ((6, 1.0), (24, 0.7), (96, 0.5), (384, 0.35), (side, 0.2)):
        noise = random.integers(0, 256, (coarse, coarse, 3), dtype=np.uint8)
        enlarged = Image.fromarray(noise).resize((side, side), Image.Resampling.BILINEAR)
        total += amplitude * np.asarray(enlarged, dtype=np.float32)
    total -= total.min()
    return Image.fromarray((total * (255 / total.max())).astype(np.uint8))


def _jpeg(canvas: Image.Image, random: np.random.Generator) -> bytes:
    width = int(min(900, max(200, random.lognormal(6.12, 0.26))))
    height = int(width * (0.75 if random.random() < 0.75 else 1.25))
    left = int(random.integers(_CANVAS_SIDE - width))
    top = int(random.integers(_CANVAS_SIDE - height))
    target = io.BytesIO()
    image = canvas.crop((left, top, left + width, top + height))
    image.save(target, "JPEG", quality=int(random.integers(80, 93)))
    return target.getvalue()


def write_imagenet(store: Store, count: int, classes: int = 20, seed: int = 0) -> tuple[int, int]:
    """Write the objects of `imagenet_like` to a store, several at once.

    Returns:
        The number of objects and bytes written.

    Raises:
        LarderError: What the store raises.
    """
    objects = imagenet_like(count, classes, seed)
    written = size_bytes = 0
    with ThreadPoolExecutor(_UPLOADS) as pool:
        while batch := list(islice(objects, _BATCH)):
            for info in pool.map(lambda each: store.put(*each), batch):
                written += 1
                size_bytes += info.size_bytes
    return written, size_bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = _parser().parse_args(arguments)
    try:
        if options.what == "digits":
            written = write_digits(options.directory)
            sys.stdout.write(f"{format_count(written, 'file')} written to {options.directory}\n")
            return 0
        store = open_store(options.url, endpoint=options.endpoint, region=options.region)
        objects, size = write_imagenet(store, options.count, options.classes, options.seed)
    except LarderError as error:
        sys.stderr.write(f"error[{error.code}]: {error}\n")
        return error.exit_status
    done = f"{format_count(objects, 'object')}, {format_bytes(size)}"
    sys.stdout.write(f"{done} written to {store.url}\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m larder.testing.datasets", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(dest="what", required=True)
    digits = commands.add_parser("digits", help="the handwritten digits, as PNG files")
    digits.add_argument("directory", type=Path)
    imagenet = commands.add_parser("imagenet", help="generated JPEGs in the layout of ILSVRC 2012")
    imagenet.add_argument("--url", required=True, help="s3://bucket/prefix or a directory")
    imagenet.add_argument("--endpoint", help="URL of an S3-compatible server other than AWS")
    imagenet.add_argument("--region")
    imagenet.add_argument(
        "--count", type=_count, default=3000, help="number of images (default: 3000)"
    )
    imagenet.add_argument("--classes", type=_count, default=20)
    imagenet.add_argument("--seed", type=int, default=0)
    return parser


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 2:
        raise argparse.ArgumentTypeError("expected a whole number, 2 or more")
    return int(text)


if __name__ == "__main__":
    raise SystemExit(main())
