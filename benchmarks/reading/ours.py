"""Larder's turns, each in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib import import_module
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import larder
from benchmarks.reading.peers import BATCH, SIZE
from larder.packages import is_installed
from larder.readers import batches
from larder.readers.data import Data


def stream(url: str, samples: int) -> dict[str, float]:
    """All samples in order, with every checksum compared: seconds from the opening to the first
    batch, and to the last.
    """
    _import(url)
    start, first, count = perf_counter(), 0.0, 0
    for batch in larder.open(url).loader("train", batch_size=BATCH, shuffle=False):
        count += len(batch["key"])
        first = first or perf_counter() - start
    _check(count, samples)
    return {"seconds": perf_counter() - start, "first": first}


def random_access(url: str, numbers: Sequence[int]) -> dict[str, float]:
    """Some samples by number, with one call, as the peers have all ranges at once."""
    _import(url)
    start = perf_counter()
    samples = larder.open(url).samples_of("train").batch(numbers)
    seconds = perf_counter() - start
    _check(len(samples), len(numbers))
    return {"seconds": seconds}


def decode(
    url: str, samples: int, options: Mapping[str, Any], simplejpeg: bool
) -> dict[str, float]:
    """An epoch of decoded batches, shuffled: seconds, and seconds of CPU."""
    data = _import(url)
    pillow = mock.patch.object(batches, "_simplejpeg", return_value=None)
    with nullcontext() if simplejpeg else pillow:
        start, cpu, count = perf_counter(), process_time(), 0
        for batch in data.loader("train", batch_size=BATCH, shuffle=True, **options):
            images = batch["image"]
            assert images.shape[1:] == (SIZE, SIZE, 3)
            count += len(images)
        _check(count, samples)
        return {"seconds": perf_counter() - start, "cpu": process_time() - cpu}


def middle(pixels: Any) -> Any:
    """The square in the middle of an image of the same height."""
    left = (pixels.shape[1] - SIZE) // 2
    return pixels[:, left : left + SIZE]


def _import(url: str) -> Data:
    """Import what reading imports when it is first used, as for the peers."""
    data = larder.open(url)
    data.samples_of("train")
    if is_installed("simplejpeg"):
        import_module("simplejpeg")
    import_module("PIL.Image")
    return data


def _check(count: int, samples: int) -> None:
    if count != samples:
        raise RuntimeError(f"{count} samples instead of {samples}")
