"""Divides the samples of a shard into lots, each of which is read together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from larder.shards.fetch import sample_bytes
from larder.shards.model import Sample
from larder.shards.together import has_derived

_LOT_BYTES = 1 << 20
"""Few enough for the processor's cache, and so many that a request is worth it."""

_MOST_SAMPLES = 1_000

_TOGETHER_SAMPLES = 256
"""As many as are appended fastest: the columns of more do not stay in the processor's cache."""


class Lot(NamedTuple):
    """Consecutive samples that are read together.

    Attributes:
        samples: A single one, unless they are read from old shards, have derived objects, or are
            read one after the other anyway.
        held_bytes: Total bytes of their objects; None if the sample is not read ahead, because it
            is bad or too large.
    """

    samples: tuple[Sample, ...]
    held_bytes: int | None


def lots(samples: Iterable[Sample], whole_bytes: int, *, together: bool = False) -> Iterator[Lot]:
    """Divide samples into lots, without changing their order.

    Samples larger than ``whole_bytes`` are not read ahead. ``together`` says that all objects are
    read one after the other, so that lots only save time.
    """
    rest = iter(samples)
    while some := tuple(islice(rest, _TOGETHER_SAMPLES if together else _MOST_SAMPLES)):
        sizes = list(map(sample_bytes, some))
        total_bytes = sum(sizes)
        fits = together and total_bytes <= min(whole_bytes, _LOT_BYTES)
        if fits and all(sample.packed is None and sample.bad is None for sample in some):
            yield Lot(some, total_bytes)
        else:
            yield from _divided(zip(some, sizes, strict=True), whole_bytes, together=together)


def _divided(
    samples: Iterable[tuple[Sample, int]], whole_bytes: int, *, together: bool
) -> Iterator[Lot]:
    held: list[Sample] = []
    held_bytes = 0
    most_bytes = min(whole_bytes, _LOT_BYTES)
    for sample, size_bytes in samples:
        ahead = sample.bad is None and size_bytes <= whole_bytes
        alone = not ahead or not (together or sample.packed is not None or has_derived(sample))
        full = held_bytes + size_bytes > most_bytes
        full = full or bool(held and (held[0].packed is None) != (sample.packed is None))
        if held and (alone or full):
            yield Lot(tuple(held), held_bytes)
            held, held_bytes = [], 0
        if alone:
            yield Lot((sample,), size_bytes if ahead else None)
        else:
            held.append(sample)
            held_bytes += size_bytes
    if held:
        yield Lot(tuple(held), held_bytes)
