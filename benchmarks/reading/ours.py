"""Larder's turns, each in a process of its own."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import numpy as np

import larder
from benchmarks.harness import CPU, SECONDS
from benchmarks.reading.peers import BATCH, SIZE
from larder.packages import is_installed
from larder.readers.data import Data
from larder.readers.loader_workers import shared_workers
from larder.readers.options import Check


def stream(url: str, samples: int, check: Check = "always") -> dict[str, float]:
    """All samples in order: seconds from the opening to the first batch, and to the last.

    Every checksum is compared. With ``once``, they were compared in an epoch that does not count.
    """
    _import(url)
    start, first, count = perf_counter(), 0.0, 0
    reading = larder.Reading(check=check)
    loader = larder.open(url).loader("train", batch_size=BATCH, shuffle=False, reading=reading)
    if check == "once":
        for _ in loader:
            pass
        start = perf_counter()
    for batch in loader:
        count += len(batch["key"])
        first = first or perf_counter() - start
    _check(count, samples)
    return {SECONDS: perf_counter() - start, "first": first}


def random_access(url: str, numbers: Sequence[int]) -> dict[str, float]:
    """Some samples by number, with one call, as the peers have all ranges at once."""
    _import(url)
    start = perf_counter()
    samples = larder.open(url).samples_of("train").batch(numbers)
    seconds = perf_counter() - start
    _check(len(samples), len(numbers))
    return {SECONDS: seconds}


def decode(
    url: str, samples: int, options: Mapping[str, Any], simplejpeg: bool
) -> dict[str, float]:
    """An epoch of decoded batches, shuffled: seconds, and seconds of CPU of all processes, of which
    those of ours have started before.
    """
    with nullcontext() if simplejpeg else _pillow_alone():
        loader = _import(url).loader("train", batch_size=BATCH, shuffle=True, **options)
        next(iter(loader))
        start, cpu, count = perf_counter(), process_time(), 0
        for batch in loader:
            images = batch["image"]
            assert images.shape[1:] == (SIZE, SIZE, 3)
            count += len(images)
        _check(count, samples)
        seconds, own = perf_counter() - start, process_time() - cpu
        shared_workers().stop()
        times = os.times()  # with what starting them took
        return {SECONDS: seconds, CPU: own + times.children_user + times.children_system}


@contextmanager
def _pillow_alone() -> Iterator[None]:
    """Hide simplejpeg from this process, which is for one turn, and from those that it starts."""
    with tempfile.TemporaryDirectory() as folder:
        hidden = "import sys; sys.modules['simplejpeg'] = None"
        (Path(folder) / "sitecustomize.py").write_text(hidden)
        os.environ["PYTHONPATH"] = folder
        sys.modules["simplejpeg"] = None  # type: ignore[assignment]
        yield


def middle(pixels: Any) -> Any:
    """The square in the middle of an image of the same height."""
    left = (pixels.shape[1] - SIZE) // 2
    return pixels[:, left : left + SIZE]


def one_class(key: str) -> Any:
    return np.int64(0)


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
