"""Rarely needed options of a loader, as values; common options are arguments of `Data.loader`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

Kind = Literal["sequential", "full", "window"]
Check = Literal["always", "once", "never"]
Even = Literal["pad", "drop", "error"]
OnError = Literal["raise", "skip"]
By = Literal["batch", "sample"]


@dataclass(frozen=True, slots=True)
class Batches:
    """Division of an epoch into batches: ``batch_size=larder.Batches(256, even="drop")``.

    Attributes:
        size: Samples of a batch, of all ranks together: a multiple of ``world``.
        per_rank: Instead, samples of a rank's part of a batch. Another number of ranks makes other
            batches, and is refused on resuming.
        even: Use of leftover samples that fill no batch. ``pad``: a smaller batch, with samples
            repeated up to a multiple of ``world``. ``drop``: left out, and counted in
            `larder.readers.loader.Loader.dropped`. ``error``: refuse.
    """

    size: int | None = None
    per_rank: int | None = None
    even: Even = "pad"


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Choice of samples in a split: ``choose=larder.Choice({"label": "cat"}, limit=1000)``.

    Attributes:
        where: Samples of a ``label`` (names or numbers of classes), samples of a ``key`` (globs),
            or both, such as ``{"label": ["cat", 3], "key": "train/**"}``. Or a function that gets
            `larder.readers.choice.Rows` and returns an array of booleans. Or the numbers of the
            samples, or booleans. None for all samples.
        limit: Most of these samples, or as a float such as 0.1 their fraction. The choice is
            random, by the seed, and contains the choice of a smaller limit.
        weights: Draw as many samples as are chosen, with replacement, anew in every epoch. An array
            with a weight for each sample of the split; or ``"balanced"``, for equally many of each
            class. In an epoch, a sample or class is drawn in proportion to its weight, rounded up
            or down.
    """

    where: Callable[[Any], ArrayLike] | Mapping[str, Any] | ArrayLike | None = None
    limit: float | None = None
    weights: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """Kind of order for shuffling: ``shuffle=larder.Shuffle("window", lanes=16)``.

    Attributes:
        kind: ``full`` shuffles all samples; the default for a cache or for shards in a directory.
            ``window`` shuffles shards, and samples within a window, so that shards are read one
            after the other; the default for shards in a bucket and for kept shards.
        window: Samples of a window, a multiple of ``batch_size``; by default about 4,096, or the
            samples in 256 MB if fewer.
        lanes: Number of shards read at a time, by all ranks together: a divisor of ``batch_size``,
            by default at most 64. If a multiple of ``world``, each shard is read by one rank.
    """

    kind: Kind | None = None
    window: int | None = None
    lanes: int | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """Parts to decode, and their masks: ``decode=larder.Images(masks=["seg.png"])``.

    Attributes:
        parts: True for all images; or the names of parts, as in ``decode`` itself.
        masks: Extensions of images whose pixels are numbers, besides the version's own masks. Masks
            are decoded to the same numbers, in one channel.
    """

    parts: bool | Collection[str] = True
    masks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """Options of reading: ``reading=larder.Reading(keep="/local/shards", on_error="skip")``.

    Attributes:
        keep: A directory for whole shards; see `larder.readers.data.Data.samples_of`. Not needed
            for a cache.
        keep_bytes: Most bytes of the kept shards, such as ``"200 GB"``.
        check: When content is compared with its checksum: ``always``, ``once`` or ``never``. For a
            cache, ``once`` compares the files on opening.
        on_error: ``skip`` counts and names samples that are damaged or cannot be decoded, in
            `larder.readers.loader.Loader.skipped`. Other samples of the rank's part of the batch
            are repeated in their place, so all ranks have equally many batches and samples.
        memory_bytes: Most bytes of samples read ahead from shards, such as ``"2 GB"``, by all
            workers of the rank together; a larger batch is read all the same. Decoded batches come
            on top: two with threads, up to three for each process.
        pin: Copy batches ahead to memory that a GPU reads by itself, as tensors of PyTorch: for
            ``tensor.to(device, non_blocking=True)``.
    """

    keep: str | Path | None = None
    keep_bytes: int | str | None = None
    check: Check = "always"
    on_error: OnError = "raise"
    memory_bytes: int | str = "512 MB"
    pin: bool = False
