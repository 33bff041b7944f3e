"""Transforming and checking images: processes, threads, and one thread.

Images are JPEGs of 500 x 375 pixels (about 130 KB), as in ImageNet, and of 2,000 x 1,500, made of
smooth colours and noise. They are resized to 256 pixels and encoded again at quality 90.

- transform: the images are in memory. Ours is a process per core (`larder.jobs.processes`),
  asked by as many threads; the peers do the same work in as many threads, and in one.
- check: ``validate: decode``, in threads, as ours does it; the peer is one thread.
- prepare: a complete run from a directory to shards in a directory, with as many workers as there
  are cores; the peers are a run with one worker, and a loop over the files with Pillow alone that
  resizes and writes them to files.
"""

from __future__ import annotations

import argparse
import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np
from PIL import Image

from benchmarks.harness import SECONDS, Figure, Measured, alternate, benchmark_parser, run, say
from larder.config.shape import Transform
from larder.jobs.processes import shared_pool
from larder.machine import usable_cores
from larder.pipeline.preparing import prepare
from larder.shards.images.check import ImageRules, check_decodable, stored_image
from tests.support.runs import run_settings

TRANSFORM = Transform(resize=256, quality=90)
SIZES = {"500 x 375": (500, 375, 2_000), "2,000 x 1,500": (2_000, 1_500, 100)}
DISTINCT = 8
PILLOW = "Pillow, one thread"


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
    """Images, some of them alike."""
    distinct = [photograph(seed, width, height) for seed in range(min(DISTINCT, count))]
    return [distinct[number % len(distinct)] for number in range(count)]


def seconds(work: Callable[[bytes], object], found: Sequence[bytes], threads: int) -> Measured:
    """The wall time of a function of each image, in some threads."""
    with ThreadPoolExecutor(threads) as executor:
        start = perf_counter()
        for _ in executor.map(work, found):
            pass
        return {SECONDS: perf_counter() - start}


def transform(found: Sequence[bytes], processes: int, threads: int) -> Measured:
    """Transform images in processes (1: in the threads) that are started already."""
    with shared_pool(processes) as pool:
        rules = ImageRules(transform=TRANSFORM, pool=pool)
        work = partial(stored_image, "jpg", where="image", rules=rules)
        seconds(work, found[:DISTINCT], threads)
        return seconds(work, found, threads)


def check(found: Sequence[bytes], threads: int) -> Measured:
    """Decode images."""
    return seconds(partial(check_decodable, "jpg", mode="decode", where="image"), found, threads)


def prepared(folder: Path, workers: int) -> Measured:
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
    return {SECONDS: perf_counter() - start}


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
    return {SECONDS: perf_counter() - start}


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    cores = usable_cores()
    processes, threads, workers = (
        f"{cores} {each}" for each in ("processes", "threads", "workers")
    )

    def compare(name: str, contenders: Mapping[str, Callable[[], Measured]]) -> Figure:
        """Compare the first contender with the others."""
        say(name)
        medians = alternate(contenders, flags.rounds)
        ours, *peers = contenders
        beside = {peer: medians[peer][SECONDS] for peer in peers}
        return Figure(f"{name}, {ours}: {SECONDS}", medians[ours][SECONDS], beside)

    for size, (width, height, most) in SIZES.items():
        count = max(DISTINCT, round(most * flags.files_scale))
        found = images(width, height, count)
        name = f"{count:,} JPEGs of {size}"
        yield compare(
            f"transform {name}",
            {
                processes: partial(transform, found, cores, cores),
                threads: partial(transform, found, 1, cores),
                "one thread": partial(transform, found, 1, 1),
            },
        )
        yield compare(
            f"check {name}",
            {threads: partial(check, found, cores), "one thread": partial(check, found, 1)},
        )
        source = folder / "source"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        for number, data in enumerate(found):
            (source / f"{number:06}.jpg").write_bytes(data)
        yield compare(
            f"prepare {name}",
            {
                workers: partial(prepared, folder, cores),
                "one worker": partial(prepared, folder, 1),
                PILLOW: partial(loop, folder),
            },
        )


PARSER = benchmark_parser("images", __doc__, rounds=5)

if __name__ == "__main__":
    run(PARSER, measure)
