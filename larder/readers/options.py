"""Options of a loader that few need, as values; what most need are arguments of `Data.loader`."""

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


@dataclass(frozen=True, slots=True)
class Batches:
    """How an epoch is divided into batches: ``batch_size=larder.Batches(256, even="drop")``.

    Attributes:
        size: Samples of a batch, of all ranks together: a multiple of ``world``.
        per_rank: Instead, samples of a rank's part of a batch. Another number of ranks makes other
            batches of it, and is refused on resuming.
        even: What becomes of the samples that make no whole batch. ``pad``: a smaller batch, in
            which samples are repeated until it is a multiple of ``world``. ``drop``: they are left
            out; `larder.readers.loader.Loader.dropped` says how many. ``error``: refuse.
    """

    size: int | None = None
    per_rank: int | None = None
    even: Even = "pad"


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Which samples of a split: ``choose=larder.Choice({"label": "cat"}, limit=1000)``.

    Attributes:
        where: Those of some ``label``, names or numbers of classes, those of some ``key``, globs,
            or both, such as ``{"label": ["cat", 3], "key": "train/**"}``; or a function that is
            called with `larder.readers.choice.Rows` and returns an array of booleans; or the
            numbers of the samples, or booleans. None for all.
        limit: At most so many of them, or as a float such as 0.1 the fraction: a random choice by
            the seed, of which a smaller one is a part.
        weights: Draw samples with replacement, others in every epoch, as many as there are: an
            array with a weight for each sample of the split, or ``"balanced"``, so that each class
            comes as often as any other. In an epoch each sample, and each class, comes as often as
            its weight says, rounded up or down.
    """

    where: Callable[[Any], ArrayLike] | Mapping[str, Any] | ArrayLike | None = None
    limit: float | None = None
    weights: ArrayLike | None = None


@dataclass(frozen=True, slots=True)
class Shuffle:
    """How samples are shuffled: ``shuffle=larder.Shuffle("window", lanes=16)``.

    Attributes:
        kind: ``full`` shuffles all samples, and is the default from a cache or from shards in a
            directory. ``window``, the default from shards in a bucket or kept, shuffles shards, and
            samples within a window, so that shards are read one after the other.
        window: Samples of a window, a multiple of ``batch_size``; by default about 4,096, or fewer
            that have 256 MB.
        lanes: How many shards are read at a time, by all ranks together: a divisor of
            ``batch_size``, by default at most 64. If it is a multiple of ``world``, a shard is read
            by one rank.
    """

    kind: Kind | None = None
    window: int | None = None
    lanes: int | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """Which parts are decoded, and how: ``decode=larder.Images(masks=["seg.png"])``.

    Attributes:
        parts: True for all images; or the names of parts, as ``decode`` itself has them.
        masks: Extensions of images whose pixels are numbers, besides those that the version names:
            they are decoded to the same numbers, in one channel.
    """

    parts: bool | Collection[str] = True
    masks: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Reading:
    """How samples are read: ``reading=larder.Reading(keep="/local/shards", on_error="skip")``.

    Attributes:
        keep: A directory where whole shards are kept; see `larder.readers.data.Data.samples_of`. A
            cache needs none.
        keep_bytes: Most bytes of the shards kept there, such as ``"200 GB"``.
        check: When what is read is compared with its checksum: ``always``, ``once`` or ``never``.
            Of a cache, ``once`` compares its files when it is opened.
        on_error: ``skip`` counts and names samples that are damaged or cannot be decoded, in
            `larder.readers.loader.Loader.skipped`. Others of the rank's part of the batch are
            repeated in their place, so that all ranks have equally many batches and samples.
        memory_bytes: Bound of the samples that are read ahead from shards, such as ``"2 GB"``, by
            all workers of the rank together; a batch is read even if it is larger. Decoded batches
            come on top: two of threads, up to three of each process.
        pin: Copy batches ahead to memory that a GPU reads by itself, as tensors of PyTorch: for
            ``tensor.to(device, non_blocking=True)``.
    """

    keep: str | Path | None = None
    keep_bytes: int | str | None = None
    check: Check = "always"
    on_error: OnError = "raise"
    memory_bytes: int | str = "512 MB"
    pin: bool = False
