"""A second reader of prepared datasets, written from the documentation alone, and slow.

It opens shards with tarfile and Pillow, and shares no code with `larder.readers`. The documentation
does not define how an order, a limit or a generator follows from a seed, only what they must not
depend on. So these are learned once, from the simplest loader (`Book`), and everything else is
compared with what follows from them.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import larder

Values = dict[str, Any]


@dataclass(frozen=True)
class Sample:
    """A sample in the order of its version: docs/reference/formats.md."""

    number: int
    key: str
    label: int | None
    parts: dict[str, bytes]
    shard: int


@dataclass(frozen=True)
class Draw:
    """A sample in an epoch, with the state of its generator; of a loader of a mix."""

    sample: int
    state: str
    loader: int = 0


def version_of(root: Path) -> list[Sample]:
    """The samples of the split ``train`` of the version that ``latest`` names."""
    name = json.loads((root / "tags/latest.json").read_text())["version"]
    version = json.loads((root / "versions" / name / "version.json").read_text())
    found: list[Sample] = []
    for segment in version["segments"]:
        omitted = segment["omitted"].get("train", {"ranges": []})["ranges"]
        shards = sorted((root / "segments" / segment["id"] / "shards/train").iterdir())
        row = 0
        for shard, path in enumerate(shards, 1000 * len(found)):
            for key, parts in _members(path):
                label = int(parts.pop("cls")) if "cls" in parts else None
                if not any(start <= row < stop for start, stop in omitted):
                    found.append(Sample(len(found), key, label, parts, shard))
                row += 1
    return found


def _members(path: Path) -> Iterator[tuple[str, dict[str, bytes]]]:
    samples: dict[str, dict[str, bytes]] = {}
    with tarfile.open(path) as archive:
        for member in archive:
            folder, _, base = member.name.rpartition("/")
            stem, _, ext = base.partition(".")
            content = archive.extractfile(member)
            assert content is not None
            samples.setdefault(f"{folder}/{stem}", {})[ext] = content.read()
    yield from samples.items()


@dataclass(frozen=True)
class Options:
    """What a loader is asked for, as far as its batches depend on it."""

    batch_size: int = 6  # of all ranks together
    shuffle: Any = False
    seed: int = 0
    choose: Any = None
    drop: bool = False
    decode: Any = None  # None, True, a list of extensions, or a larder.Images
    columns: tuple[str, ...] | None = None
    transforms: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    map: Callable[[Values, np.random.Generator], Values] | None = None
    collate: Callable[[list[Values]], Any] | None = None


class Dataset:
    """A prepared dataset and what a sample of it is, whatever it is read from."""

    def __init__(self, url: str, root: Path, kind: str) -> None:
        self.data = larder.open(url)
        self.kind = kind  # shards, encoded, decoded or built
        self.samples = version_of(root)
        self.numbers = {sample.key: sample.number for sample in self.samples}
        self.exts = sorted({ext for sample in self.samples for ext in sample.parts})
        self._learned: dict[str, list[list[Draw]]] = {}

    def epoch(self, options: Options, number: int) -> list[Draw]:
        """The order of an epoch, with all samples: learned once, and checked."""
        shuffle, size = options.shuffle, options.batch_size
        by_batch = size if shuffle and shuffle is not True and shuffle.kind == "window" else 0
        choose = options.choose
        name = repr((shuffle, by_batch, options.seed, id(choose)))
        epochs = self._learned.setdefault(name, [])
        if len(epochs) <= number:
            loader = self.data.loader(
                "train",
                batch_size=size,
                shuffle=shuffle,
                seed=options.seed,
                choose=choose,
                **SIMPLEST,
            )
            epochs[:] = [
                [self._draw(each) for b in loader for each in b] for _ in range(number + 3)
            ]
            for each in epochs:
                self._check(options, [draw.sample for draw in each])
        return epochs[number]

    def _draw(self, spied: Values, loader: int = 0) -> Draw:
        return Draw(self.numbers[spied["key"]], spied["state"], loader)

    def _check(self, options: Options, order: list[int]) -> None:
        """What the documentation says about any order."""
        choose = options.choose
        if choose is None or choose.weights is None:
            assert max(Counter(order).values()) == 1, "a sample comes twice in an epoch"
        if choose is None:
            assert len(order) == len(self.samples), "an epoch lacks samples"
        if not options.shuffle and (choose is None or choose.weights is None):
            assert order == sorted(order), "the order is not that of the version"

    def values(self, sample: Sample, options: Options) -> Values:
        """The values of a sample before a function has seen them."""
        values: Values = {"key": sample.key}
        if any(each.label is not None for each in self.samples):
            values["label"] = np.int64(sample.label)
        if self.kind == "built":
            image = picture(sample.parts["png"])
            return {**values, "image": image, "sum": np.int64(int(image.sum()) * 3)}
        decode: Any = True if self.kind == "decoded" else options.decode
        wanted = decode if isinstance(decode, list) else self.exts if decode else []
        for ext in self.exts:
            data, name = sample.parts.get(ext), ext
            is_image = ext.rpartition(".")[2] == "png" and ext in wanted
            if is_image:
                name = {"png": "image", "seg.png": "image.seg"}[ext]
                value: Any = mask(data) if ext == "seg.png" else picture(data)
            elif data is not None and self.kind != "shards":
                value = np.frombuffer(data, np.uint8)
            else:
                value = data
            if data is not None:
                values[name] = value
                if options.columns and ext in options.columns:
                    values[ext] = value
        return values

    def fields(self, options: Options) -> list[str]:
        """The names that every batch has: of a cache all that any of its samples has."""
        if self.kind == "shards":
            return []
        return sorted({name for each in self.samples for name in self.values(each, options)})

    def made(self, draw: Draw, options: Options) -> Values:
        """A sample as it is put into a batch."""
        values = self.values(self.samples[draw.sample], options)
        if options.columns is not None:
            values = {name: values[name] for name in options.columns if name in values}
        for name, function in options.transforms.items():
            if name in values:
                values[name] = function(values[name])
        if options.map is not None:
            values = options.map(values, generator(draw.state))
        return values


def spied(sample: Values, rng: np.random.Generator) -> Values:
    """The key of a sample, and the state of its generator."""
    return {"key": sample["key"], "state": json.dumps(rng.bit_generator.state)}


SIMPLEST: dict[str, Any] = {
    "columns": ["key"],
    "map": spied,
    "collate": list,
    "workers": 0,
    "rank": 0,
    "world": 1,
}


def generator(state: str) -> np.random.Generator:
    """A generator in the state that was learned."""
    rng = np.random.default_rng()
    rng.bit_generator.state = json.loads(state)
    return rng


def picture(data: Any) -> Any:
    """docs/how-to/read-in-training.md: uint8, of three channels."""
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))


def mask(data: Any) -> Any:
    """docs/reference/images.md, Masks: of a palette the numbers, in one channel."""
    return np.asarray(Image.open(io.BytesIO(data)))[:, :, None]


def stacked(samples: Sequence[Values], names: Sequence[str] = ()) -> Values:
    """A batch of samples: arrays of one shape and type are one array, others a list."""
    names = list(names) or sorted({name for sample in samples for name in sample})
    return {name: _column([sample.get(name) for sample in samples]) for name in names}


def _column(values: list[Any]) -> Any:
    arrays = all(isinstance(value, (np.ndarray, np.generic)) for value in values)
    if arrays and len({(value.shape, value.dtype) for value in values}) == 1:
        return np.stack(values)
    return values


def shared(draws: list[Draw], epoch: list[Draw], at: int, rank: int, world: int) -> list[Draw]:
    """A rank's part of a batch that begins ``at`` a place of the epoch; the last one is padded.

    It is padded with the samples of the epoch from its own first one on, and after the last of
    them with the first ones of the epoch.
    """
    extra = -len(draws) % world
    full = draws + [epoch[(at + place) % len(epoch)] for place in range(extra)]
    share = len(full) // world
    return full[rank * share : (rank + 1) * share]


class Single:
    """The batches of a loader."""

    def __init__(self, dataset: Dataset, options: Options) -> None:
        self.dataset, self.options = dataset, options

    def length(self) -> int:
        samples, size = len(self.dataset.epoch(self.options, 0)), self.options.batch_size
        return samples // size if self.options.drop else -(-samples // size)

    def part(self, epoch: int, number: int, rank: int, world: int) -> list[Draw]:
        """The samples of a batch that a rank has."""
        order, size = self.dataset.epoch(self.options, epoch), self.options.batch_size
        at = number * size
        return shared(order[at : at + size], order, at, rank, world)

    def made(self, draw: Draw) -> Values:
        return self.dataset.made(draw, self.options)

    def batch(self, draws: list[Draw]) -> Any:
        samples = [self.made(draw) for draw in draws]
        if self.options.collate:
            return self.options.collate(samples)
        if self.options.map is not None:
            return stacked(samples)
        batch = stacked(samples, self.options.columns or self.dataset.fields(self.options))
        return {name: list(batch[name]) if name in self.lists() else batch[name] for name in batch}

    def lists(self) -> set[str]:
        """The names that are a list in any batch: files in a cache, whose lengths differ in it."""
        if self.dataset.kind not in ("encoded", "decoded") or self.options.map is not None:
            return set()
        return set(self.dataset.exts) - set(self.options.transforms)


class Mixed:
    """The batches of a mix, whose choice among its loaders is learned from the simplest mix."""

    def __init__(
        self, loaders: list[Single], weights: list[float], by: str, seed: int, batches: int | None
    ) -> None:
        self.loaders, self.weights, self.by = loaders, weights, by
        self.seed, self.batches = seed, batches
        self._epochs: list[list[list[Draw]]] = []

    def length(self) -> int:
        return self.batches or sum(loader.length() for loader in self.loaders)

    def part(self, epoch: int, number: int, rank: int, world: int) -> list[Draw]:
        if len(self._epochs) <= epoch:
            self._learn(epoch + 2)
        batch = self._epochs[epoch][number]
        share = len(batch) // world
        return batch[rank * share : (rank + 1) * share]

    def _learn(self, epochs: int) -> None:
        pairs = []
        for loader, weight in zip(self.loaders, self.weights, strict=True):
            options = loader.options
            reader = loader.dataset.data.loader(
                "train",
                batch_size=larder.Batches(
                    options.batch_size, even="drop" if options.drop else "pad"
                ),
                shuffle=options.shuffle,
                seed=options.seed,
                choose=options.choose,
                **SIMPLEST,
            )
            pairs.append((reader, weight))
        mix = larder.mix(pairs, seed=self.seed, by=self.by, batches=self.batches)
        size = self.loaders[0].options.batch_size
        drawn: Counter[int] = Counter()
        self._epochs = []
        for _ in range(epochs):
            batches = [[self._draw(each) for each in batch] for batch in mix]
            assert len(batches) == self.length(), "an epoch has another number of batches"
            assert {len(batch) for batch in batches} == {size}, "a batch of a mix is not whole"
            self._check(batches, drawn)
            self._epochs.append(batches)

    def _draw(self, spied: Values) -> Draw:
        for place, loader in enumerate(self.loaders):
            if spied["key"] in loader.dataset.numbers:
                return loader.dataset._draw(spied, place)
        raise AssertionError(f"no loader has {spied['key']}")

    def _check(self, batches: list[list[Draw]], drawn: Counter[int]) -> None:
        """Each loader gives its samples in its own order, as often as its weight says."""
        units = [batch[:1] for batch in batches] if self.by == "batch" else batches
        counts = Counter(draw.loader for unit in units for draw in unit)
        for place, weight in enumerate(self.weights):
            share = counts.total() * weight / sum(self.weights)
            assert abs(counts[place] - share) < 1, "a weight is not kept"
        for batch in batches:
            assert self.by == "sample" or len({draw.loader for draw in batch}) == 1
            for draw in batch:
                loader = self.loaders[draw.loader]
                order = [each.sample for each in loader.dataset.epoch(loader.options, 0)]
                epoch, place = divmod(drawn[draw.loader], len(order))
                order = [each.sample for each in loader.dataset.epoch(loader.options, epoch)]
                assert draw.sample == order[place], "a loader of a mix has another order"
                drawn[draw.loader] += 1

    def batch(self, draws: list[Draw]) -> Any:
        if self.by == "batch":
            return self.loaders[draws[0].loader].batch(draws)
        samples = [self.loaders[draw.loader].made(draw) for draw in draws]
        collate = self.loaders[0].options.collate
        if collate:
            return collate(samples)
        batch = stacked(samples)
        lists = {name for draw in draws for name in self.loaders[draw.loader].lists()}
        return {name: list(batch[name]) if name in lists else batch[name] for name in batch}


def differs(got: Any, wanted: Any, where: str = "batch") -> str | None:  # noqa: PLR0911
    """The first difference of two batches, or None; arrays bit for bit."""
    if isinstance(wanted, dict) and isinstance(got, dict):
        if set(got) != set(wanted):
            return f"{where}: names {sorted(got)} instead of {sorted(wanted)}"
        found = (differs(got[name], wanted[name], f"{where}[{name!r}]") for name in wanted)
        return next((each for each in found if each), None)
    if isinstance(wanted, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(got) != len(wanted):
            return f"{where}: {len(got)} values instead of {len(wanted)}"
        pairs = enumerate(zip(got, wanted, strict=True))
        found = (differs(one, other, f"{where}[{place}]") for place, (one, other) in pairs)
        return next((each for each in found if each), None)
    if isinstance(wanted, (np.ndarray, np.generic)):
        one, other = np.asarray(got), np.asarray(wanted)
        if not isinstance(got, (np.ndarray, np.generic)):
            return f"{where}: {type(got).__name__} instead of an array"
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            return f"{where}: {one.dtype} {one.shape} instead of {other.dtype} {other.shape}"
        if one.tobytes() == other.tobytes():
            return None
        return f"{where}: {re.sub(' +', ' ', repr(got))[:200]} instead of {repr(wanted)[:200]}"
    if type(got) is type(wanted) and got == wanted:
        return None
    return f"{where}: {repr(got)[:200]} instead of {repr(wanted)[:200]}"
