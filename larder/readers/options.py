"""Options of a loader that few need, as values; what most need are arguments of `Data.loader`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Final, Literal, ParamSpec, TypeVar

from larder.errors import ConfigError

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal["sequential", "full", "window"]
Check = Literal["always", "once", "never"]


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
    """How the storage is read: ``reading=larder.Reading(keep="/local/shards", check="once")``.

    Attributes:
        keep: A directory where whole shards are kept; see `larder.readers.data.Data.samples_of`. A
            cache needs none.
        keep_bytes: Most bytes of the shards kept there, such as ``"200 GB"``.
        check: When what is read is compared with its checksum: ``always``, ``once`` or ``never``.
            Of a cache, ``once`` compares its files when it is opened.
        memory_bytes: Bound of the samples that are read ahead from shards, such as ``"2 GB"``, by
            all workers of the rank together; a batch is read even if it is larger. Decoded batches
            come on top: two of threads, up to three of each process.
        pin: Copy batches ahead to memory that a GPU reads by itself, as tensors of PyTorch: for
            ``tensor.to(device, non_blocking=True)``.
    """

    keep: str | Path | None = None
    keep_bytes: int | str | None = None
    check: Check = "always"
    memory_bytes: int | str = "512 MB"
    pin: bool = False


MOVED: Final = {
    "order": "shuffle=larder.Shuffle(...)",
    "window": "shuffle=larder.Shuffle(window=...)",
    "lanes": "shuffle=larder.Shuffle(lanes=...)",
    "masks": "decode=larder.Images(masks=...)",
    "keep": "reading=larder.Reading(keep=...)",
    "keep_bytes": "reading=larder.Reading(keep_bytes=...)",
    "check": "reading=larder.Reading(check=...)",
    "memory_bytes": "reading=larder.Reading(memory_bytes=...)",
    "use_multiprocessing": "workers=..., the processes that decode",
}


def refuse_moved(method: Callable[P, T]) -> Callable[P, T]:
    """Have a method name the new place of an argument that it no longer has."""

    @wraps(method)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        for name in named:
            if name in MOVED:
                message = f"{method.__name__} has no argument {name} any more"
                hint = f"give {MOVED[name]}"
                raise ConfigError("config.invalid_value", message, where=name, hint=hint)
        return method(*arguments, **named)

    return call
