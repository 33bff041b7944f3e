"""Real files on disk in the layout of ImageNet, and changes of them that can be taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import Image

from benchmarks.growing.names import Names, Picks

_CANVAS_SIDE = 2048
_PHOTOGRAPHS = 300
_JPEG_START = b"\xff\xd8"


def photographs(count: int) -> list[bytes]:
    """Generated JPEGs of about 110 kB, of lognormal sizes, with noise at several resolutions."""
    rng = np.random.default_rng(7)
    side = _CANVAS_SIDE
    total = np.zeros((side, side, 3), dtype=np.float32)
    for coarse, amplitude in ((8, 1.0), (32, 0.7), (128, 0.5), (512, 0.35), (side, 0.2)):
        noise = Image.fromarray(rng.integers(0, 256, (coarse, coarse, 3), dtype=np.uint8))
        enlarged = noise.resize((side, side), Image.Resampling.BILINEAR)
        total += amplitude * np.asarray(enlarged, dtype=np.float32)
    total -= total.min()
    canvas = Image.fromarray((total * (255 / total.max())).astype(np.uint8))
    return [_photograph(canvas, rng) for _ in range(count)]


def _photograph(canvas: Image.Image, rng: np.random.Generator) -> bytes:
    width = int(min(1500, max(250, rng.lognormal(6.56, 0.26))))
    height = int(width * (0.75 if rng.random() < 0.75 else 1.25))
    left, top = (int(rng.integers(_CANVAS_SIDE - each)) for each in (width, height))
    target = BytesIO()
    image = canvas.crop((left, top, left + width, top + height))
    image.save(target, "JPEG", quality=int(rng.integers(80, 93)))
    return target.getvalue()


def make_files(folder: Path, names: Names) -> int:
    """Write all files before any change; returns their bytes.

    Each is one of 300 photographs with a comment of its own, so that no two have the same bytes.
    """
    images = photographs(max(1, min(_PHOTOGRAPHS, names.count // 20)))
    return sum(
        _write(folder / names.key(number), images[number % len(images)], f"{number}")
        for number in range(names.count)
    )


def make_spare(folder: Path, names: Names, picks: Picks) -> None:
    """Write the files of a change to another folder: those to add, and the new content of others.

    Renaming a file keeps its time, size and inode, and thus its etag.
    """
    images = photographs(max(1, min(_PHOTOGRAPHS // 3, len(picks.added + picks.changed))))
    for place, number in enumerate(picks.added):
        key = names.key(number, added=True)
        _write(folder / "new" / key, images[place % len(images)], f"added {number}")
    for place, number in enumerate(picks.changed):
        key = names.key(number)
        _write(folder / "new" / key, images[place % len(images)], f"changed {number}")


@contextmanager
def with_change(files: Path, spare: Path, names: Names, picks: Picks) -> Iterator[None]:
    """Make a change by renaming files, and take it back when the block ends."""
    added = [names.key(number, added=True) for number in picks.added]
    gone = [names.key(number) for number in (*picks.removed, *picks.changed)]
    new = [*added, *map(names.key, picks.changed)]
    _move(files, spare / "old", gone)
    _move(spare / "new", files, new)
    try:
        yield
    finally:
        _move(files, spare / "new", new)
        _move(spare / "old", files, gone)


def _move(source: Path, target: Path, keys: list[str]) -> None:
    for key in keys:
        (target / key).parent.mkdir(parents=True, exist_ok=True)
        (source / key).rename(target / key)


def _write(path: Path, image: bytes, comment: str) -> int:
    """Write a JPEG with a comment (marker COM, which no reader shows)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = comment.encode()
    marker = b"\xff\xfe" + (len(text) + 2).to_bytes(2, "big") + text
    return path.write_bytes(_JPEG_START + marker + image.removeprefix(_JPEG_START))
