"""Transforming and checking images: processes, threads, and one thread.

::

    python -m benchmarks.images [--runs 5] [--files-scale 1] [--directory DIR] [--json]

Images are JPEGs of 500 x 375 pixels (about 130 KB), as in ImageNet, and of 2,000 x 1,500, made of
smooth colours and noise. They are resized to 256 pixels and encoded again at quality 90.

- transform: the images are in memory. Ours is a process per core (`larder.jobs.process_pool`),
  asked by as many threads; the peers do the same work in as many threads, and in one.
- check: ``validate: decode``, in threads, as ours does it; the peer is one thread.
- prepare: a complete run from a directory to shards in a directory, with as many workers as there
  are cores; the peers are a run with one worker, and a loop over the files with Pillow alone that
  resizes and writes them to files.
"""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

from benchmarks.harness import Figure, alternate, arguments, document, say, settle, table
from larder.config.shape import Transform
from larder.jobs.process_pool import shared_pool
from larder.machine import usable_cores
from larder.pipeline.preparing import prepare
from larder.shards.images.check import ImageRules, check_image, stored_image
from tests.support.runs import run_settings

TRANSFORM = Transform(resize=256, quality=90)
SIZES = {"500 x 375": (500, 375, 2_000), "2,000 x 1,500": (2_000, 1_500, 100)}
DISTINCT = 8
PILLOW = "Pillow, one thread"

Measured = Mapping[str, float]


def photograph(seed: int, width: int, height: int) -> bytes:
    """A JPEG of smooth colours and some noise."""
    random = np.random.default_rng(seed)
    coarse = random.normal(128, 50, (height // 8 + 2, width // 8 + 2, 3)).clip(0, 255)
    smooth = Image.fromarray(coarse.astype(np.uint8)).resize((width, height))
    pixels = np.asarray(smooth) + random.normal(0, 12, (height, width, 3))
    target = io.BytesIO()
    Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(target, "JPEG", quality=95)
    return target.getvalue()


def images(width: int, height: int, count: int) -> list[bytes]:
    """So many images, some of them alike."""
    distinct = [photograph(seed, width, height) for seed in range(min(DISTINCT, count))]
    return [distinct[number % len(distinct)] for number in range(count)]


def seconds(work: Callable[[bytes], object], found: Sequence[bytes], threads: int) -> Measured:
    """The wall time of a function of each image, in so many threads."""
    with ThreadPoolExecutor(threads) as executor:
        start = perf_counter()
        for _ in executor.map(work, found):
            pass
        return {"wall": perf_counter() - start}


def transform(found: Sequence[bytes], processes: int, threads: int) -> Measured:
    """Transform images in processes (1: in the threads) that are started already."""
    with shared_pool(processes) as pool:
        rules = ImageRules(transform=TRANSFORM, pool=pool)
        work = partial(stored_image, "jpg", where="image", rules=rules)
        seconds(work, found[:DISTINCT], threads)
        return seconds(work, found, threads)


def check(found: Sequence[bytes], threads: int) -> Measured:
    """Decode images."""
    return seconds(partial(check_image, "jpg", mode="decode", where="image"), found, threads)


def run(folder: Path, workers: int) -> Measured:
    """Prepare a dataset of transformed images."""
    images = {"resize": TRANSFORM.resize, "quality": TRANSFORM.quality}
    shutil.rmtree(folder / "local", ignore_errors=True)
    settings = run_settings(
        folder / "source",
        folder / "local",
        folder / "out",
        shards={"bytes": 8_000_000, "images": images},
        cluster={"runner": {"workers": workers, "batch_bytes": 16_000_000}},
    )
    start = perf_counter()
    prepare(settings)
    return {"wall": perf_counter() - start}


def loop(folder: Path) -> Measured:
    """Resize every file with Pillow, and write it to another."""
    target = folder / "resized"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    start = perf_counter()
    for path in sorted((folder / "source").iterdir()):
        with Image.open(path) as image:
            scale = 256 / min(image.size)
            size = round(image.width * scale), round(image.height * scale)
            image.draft("RGB", (size[0] * 3, size[1] * 3))
            small = image.resize(size, Image.Resampling.BICUBIC)
            small.save(target / path.name, "JPEG", quality=90)
    return {"wall": perf_counter() - start}


def cases(folder: Path, scale: float, runs: int) -> list[Figure]:
    cores = usable_cores()
    measured: list[Figure] = []

    def compare(name: str, ours: str, contenders: Mapping[str, Callable[[], Measured]]) -> None:
        say(name)
        medians = alternate(contenders, runs, before=settle)
        walls = {contender: found["wall"] for contender, found in medians.items()}
        measured.append(Figure(name, walls.pop(ours), walls))

    for size, (width, height, most) in SIZES.items():
        count = max(DISTINCT, round(most * scale))
        found = images(width, height, count)
        name = f"{count:,} JPEGs of {size}"
        ours = f"{cores} processes"
        compare(
            f"transform {name}",
            ours,
            {
                ours: partial(transform, found, cores, cores),
                f"{cores} threads": partial(transform, found, 1, cores),
                "one thread": partial(transform, found, 1, 1),
            },
        )
        threads = f"{cores} threads"
        compare(
            f"check {name}",
            threads,
            {threads: partial(check, found, cores), "one thread": partial(check, found, 1)},
        )
        source = folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for number, data in enumerate(found):
            (source / f"{number:06}.jpg").write_bytes(data)
        ours = f"{cores} workers"
        compare(
            f"prepare {name}",
            ours,
            {
                ours: partial(run, folder, cores),
                "one worker": partial(run, folder, 1),
                PILLOW: partial(loop, folder),
            },
        )
    return measured


def main(argv: Sequence[str] | None = None) -> None:
    asked = arguments(__doc__ or "", argv)
    with tempfile.TemporaryDirectory(dir=asked.directory) as folder:
        found = cases(Path(folder), asked.files_scale, asked.runs)
    if asked.json:
        print(document("images", found))
        return
    rows = [
        (case.name, f"{case.ours:.2f} s", peer, f"{wall:.2f} s", f"{wall / case.ours:.2f}")
        for case in found
        for peer, wall in case.peers.items()
        if wall is not None
    ]
    print(table(("", "ours", "peer", "its time", "times ours"), rows))


if __name__ == "__main__":
    main()
