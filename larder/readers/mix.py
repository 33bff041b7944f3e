"""Mixes: several loaders as one, with samples of all loaders by their weights.

The sequence of loaders follows from the seed and the number of the epoch, like the order of a
split. So ranks and workers divide the batches of a mix, and training resumes, as with any loader.
Each loader gives its samples in its own orders, epoch after epoch, without an end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from numbers import Real
from typing import Any, Final, get_args

import numpy as np

from larder.errors import ObjectError
from larder.readers.batch_decoding import LABEL, Batch, Decoding, Draws, Empty, joined
from larder.readers.epoch_order import Numbers
from larder.readers.loader import Decode, Loader
from larder.readers.options import By
from larder.readers.schedule import MixSchedule, Schedule, choice, invalid, whole
from larder.readers.sources import BatchSource, Read

_MOST_WEIGHT: Final = 1e30

_CLASSES_HINT: Final = (
    "prepare both datasets with the same `classes` in `labels`, make the numbers the same with"
    " transforms={'label': FUNCTION}, or leave the label out with columns="
)


class Mix(Loader):
    """The batches of several loaders, made by `larder.mix` and used like a loader."""

    def __init__(
        self,
        loaders: Iterable[tuple[Loader, float]],
        *,
        seed: int,
        batches: int | None,
        by: By,
    ) -> None:
        weighted = list(loaders)
        _check(weighted)
        _check_classes([loader for loader, _ in weighted])
        choice("by", by, get_args(By))
        first = weighted[0][0]
        parts = [loader.parts for loader, _ in weighted]
        total = sum(len(loader) for loader, _ in weighted)
        schedule = MixSchedule(
            tuple(part.schedule for part in parts if isinstance(part.schedule, Schedule)),
            tuple(float(weight) for _, weight in weighted),
            whole("seed", seed, 0),
            whole("batches", total if batches is None else batches, 1),
            by,
        )
        schedule.check()
        mixed = parts[0]._replace(
            source=_Sources([part.source for part in parts], schedule.starts),
            schedule=schedule,
            index=[part.index for part in parts],
            decode=_Decodes([part.decode for part in parts]),
            memory_bytes=max(part.memory_bytes for part in parts),
            workers=max((n for part in parts if (n := part.workers) is not None), default=None),
        )
        super().__init__(
            **mixed._asdict(),
            rank=first.rank,
            world=first.world,
            is_ranked=all(loader.is_ranked for loader, _ in weighted),
        )

    def _keys_of(self, samples: Numbers) -> list[str]:
        keys: list[str] = []
        start = 0
        for index in self._index:
            inside = samples[(samples >= start) & (samples < start + len(index))] - start
            keys += index.keys_of(inside) if len(inside) else []
            start += len(index)
        return keys


class _Sources:
    """Sources of several loaders.

    A batch is a list of parts, until `_Decodes` joins them: each with the number of its source, its
    rows in the batch, and their values.
    """

    def __init__(self, sources: Sequence[BatchSource], starts: Numbers) -> None:
        self.is_decoded = all(source.is_decoded for source in sources)
        self._sources = sources
        self._starts = starts

    def read(self, shares: Sequence[Numbers]) -> list[Read]:
        parts: list[list[tuple[int, Numbers, Read]]] = [[] for _ in shares]
        of_shares = [np.searchsorted(self._starts, share, side="right") - 1 for share in shares]
        for number, source in enumerate(self._sources):
            rows = [np.flatnonzero(sources == number) for sources in of_shares]
            used = [place for place, inside in enumerate(rows) if len(inside)]
            start = self._starts[number]
            numbers = [shares[place][rows[place]] - start for place in used]
            reads = source.read(numbers) if numbers else []
            for place, read in zip(used, reads, strict=True):
                parts[place].append((number, rows[place], read))
        return [partial(_parts, each) for each in parts]

    def stored_bytes(self, numbers: Numbers) -> Numbers:
        sources = np.searchsorted(self._starts, numbers, side="right") - 1
        stored = np.zeros(len(numbers), np.int64)
        for number in sorted(set(sources.tolist())):
            rows = np.flatnonzero(sources == number)
            of_source = numbers[rows] - self._starts[number]
            stored[rows] = self._sources[number].stored_bytes(of_source)
        return stored


def _parts(
    reads: Sequence[tuple[int, Numbers, Read]], empty: Empty
) -> list[tuple[int, Numbers, Batch]]:
    return [(source, rows, read(empty)) for source, rows, read in reads]


class _Decodes:
    """Decodes the parts of a batch as their loaders do, and joins them."""

    def __init__(self, decodes: Sequence[Decode | None]) -> None:
        self.calls_functions = any(getattr(each, "calls_functions", False) for each in decodes)
        self._decodes = decodes

    def __call__(
        self,
        batch: Any,
        on_error: Callable[[int, ObjectError], None] | None = None,
        draws: Draws | None = None,
        empty: Empty = np.empty,
    ) -> Batch:
        pieces: list[tuple[list[int], Batch]] = []
        for source, rows, part in batch:
            errors: dict[int, ObjectError] = {}
            decode = self._decodes[source]
            if decode is not None:
                part_draws = draws and draws._replace(numbers=draws.numbers[rows])
                part = decode(part, on_error and errors.__setitem__, part_draws, empty)
            if on_error is not None:
                for row, error in errors.items():
                    on_error(int(rows[row]), error)
            kept = [row for number, row in enumerate(rows.tolist()) if number not in errors]
            pieces.append((kept, part))
        return joined(pieces, empty)


def _check(weighted: Sequence[Any]) -> None:
    if not weighted:
        raise invalid("there is no loader to mix", "loaders")
    for pair in weighted:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and type(pair[0]) is Loader):
            hint = "give pairs such as (data.loader('train', batch_size=256), 0.7)"
            raise invalid(f"{pair!r} is not a loader and its weight", "loaders", hint)
        loader, weight = pair
        number = isinstance(weight, Real) and not isinstance(weight, bool)
        if not number or not 0 < weight <= _MOST_WEIGHT:
            message = f"{weight!r} is no weight: a number above 0, at most {_MOST_WEIGHT:g}"
            raise invalid(message, "loaders")
        if loader.parts.index is None:
            message = "a loader of a cached function cannot be mixed"
            raise invalid(message, "loaders", "mix the elements in the function")
        if not len(loader):
            raise invalid("a loader has no batches", "loaders", "leave it out")
        if loader.epoch or loader.batches:
            hint = "give it as it was made: the state of the mix is that of all"
            raise invalid("a loader was iterated or moved", "loaders", hint)
    mixed = [loader for loader, _ in weighted]
    if len({id(loader) for loader in mixed}) < len(mixed):
        raise invalid("a loader is there twice", "loaders", "give it once, with its whole weight")
    ranks = {(loader.rank, loader.world) for loader in mixed}
    if len(ranks) > 1:
        listed = ", ".join(f"rank {rank} of {world}" for rank, world in sorted(ranks))
        raise invalid(f"the loaders are of different ranks: {listed}", "loaders")
    for name, values in (
        ("batch_size", [loader.batch_size for loader in mixed]),
        ("on_error", [loader.parts.on_error for loader in mixed]),
        ("collate", [loader.parts.collate for loader in mixed]),
    ):
        if any(value != values[0] for value in values):
            raise invalid(f"the loaders differ in {name}", "loaders", f"give all the same {name}")


def _check_classes(loaders: Sequence[Loader]) -> None:
    """Refuse loaders if a label stands for different classes in their batches.

    One table may be longer than another, as after growth.
    """
    labelled = [loader for loader in loaders if _has_own_labels(loader)]
    longest = max(labelled, key=lambda loader: len(loader.parts.index.classes), default=None)
    for loader in labelled:
        assert longest is not None, "there is one"
        tables = loader.parts.index.classes, longest.parts.index.classes
        for number, (one, other) in enumerate(zip(*tables, strict=False)):
            if one != other:
                names = loader.parts.schedule.name, longest.parts.schedule.name
                message = (
                    f"label {number} is class {one!r} in {names[0]}, and {other!r} in {names[1]}"
                )
                raise invalid(message, "loaders", _CLASSES_HINT)


def _has_own_labels(loader: Loader) -> bool:
    """Whether batches have labels that are the version's own class numbers."""
    decoding = loader.parts.decode
    classes = getattr(loader.parts.index, "classes", ())
    if not classes or not isinstance(decoding, Decoding):
        return bool(classes)
    return LABEL in (decoding.columns or (LABEL,)) and LABEL not in decoding.transforms
