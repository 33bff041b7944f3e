"""A second reader of prepared datasets, written from the documentation alone, and slow.

It opens shards with tarfile and Pillow, and shares no code with `larder.readers`. The documentation
does not define how an order, a limit or a generator follows from a seed, only what they must not
depend on. So these are learned once, from the simplest loader, and all else follows from them.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from PIL import Image

import larder

Values = dict[str, Any]
FIELDS = {"png": "image", "seg.png": "image.seg"}


@dataclass(frozen=True)
class Sample:
    """A sample of a version."""

    key: str
    label: int | None
    parts: dict[str, bytes]


@dataclass(frozen=True)
class Draw:
    """A sample in an epoch, by its number, with its generator; in a mix, of one of its loaders."""

    sample: int
    state: str
    loader: int = 0


def version_of(root: Path) -> list[Sample]:
    """The samples of the split ``train`` of the version ``latest``: docs/reference/formats.md."""
    name = json.loads((root / "tags/latest.json").read_text())["version"]
    version = json.loads((root / "versions" / name / "version.json").read_text())
    found: list[Sample] = []
    for segment in version["segments"]:
        omitted = segment["omitted"].get("train", {"ranges": []})["ranges"]
        shards = sorted((root / "segments" / segment["id"] / "shards/train").iterdir())
        rows = [sample for shard in shards for sample in _samples(shard)]
        found += [
            sample
            for row, sample in enumerate(rows)
            if not any(start <= row < stop for start, stop in omitted)
        ]
    return found


def _samples(shard: Path) -> Iterator[Sample]:
    found: dict[str, dict[str, bytes]] = {}
    with tarfile.open(shard) as archive:
        for member in archive:
            folder, _, base = member.name.rpartition("/")
            stem, _, ext = base.partition(".")
            found.setdefault(f"{folder}/{stem}", {})[ext] = archive.extractfile(member).read()  # type: ignore[union-attr]
    for key, parts in found.items():
        yield Sample(key, int(parts.pop("cls")) if "cls" in parts else None, parts)


def spied(sample: Values, rng: np.random.Generator) -> Values:
    """The key of a sample, and the state of its generator."""
    return {"key": sample["key"], "state": json.dumps(rng.bit_generator.state)}


ONE = {"workers": 0, "rank": 0, "world": 1}
SIMPLEST: Values = {"columns": ["key"], "map": spied, "collate": list, **ONE}


class Dataset:
    """A prepared dataset, and its orders."""

    def __init__(self, url: str, root: Path, kind: str) -> None:
        self.data = larder.open(url)
        self.kind = kind  # shards, encoded, decoded or built
        self.samples = version_of(root)
        self.numbers = {sample.key: number for number, sample in enumerate(self.samples)}
        self.exts = sorted({ext for sample in self.samples for ext in sample.parts})
        self._learned: dict[str, list[list[Draw]]] = {}

    def epoch(self, options: Options, number: int) -> list[Draw]:
        """The order of an epoch, with all samples: learned once, and checked."""
        shuffle, choose = options.order["shuffle"], options.order["choose"]
        by_size = options.size if shuffle and shuffle.kind == "window" else 0
        name = repr((shuffle, by_size, options.order["seed"], id(choose)))
        epochs = self._learned.setdefault(name, [])
        if len(epochs) <= number:
            order = {**options.order, "batch_size": options.size}
            loader = self.data.loader("train", **order, **SIMPLEST)
            read = range(number + 3)
            epochs[:] = [[self.draw(each) for batch in loader for each in batch] for _ in read]
            for draws in epochs:
                self._check(draws, choose or larder.Choice(), bool(shuffle))
        return epochs[number]

    def draw(self, spied: Values, loader: int = 0) -> Draw:
        return Draw(self.numbers[spied["key"]], spied["state"], loader)

    def _check(self, draws: list[Draw], choose: larder.Choice, shuffled: bool) -> None:
        """An epoch has the samples that are chosen, as often as they must come."""
        order, chosen = [draw.sample for draw in draws], self._chosen(choose.where)
        assert chosen.issuperset(order), "a sample was not chosen"
        limit = len(chosen) if choose.limit is None else choose.limit
        limit = limit * len(chosen) if isinstance(limit, float) else min(limit, len(chosen))
        assert abs(len(order) - limit) < 1, "an epoch has another number of samples"
        counts: Counter[Any] = Counter(order)
        weights: Any = choose.weights
        if weights is None:
            assert len(counts) == len(order), "a sample comes twice in an epoch"
            assert shuffled or order == sorted(order), "the order is not that of the version"
            return
        if isinstance(weights, str):  # balanced: classes are drawn equally often
            counts = Counter(self.samples[number].label for number in order)
            weights = dict.fromkeys({self.samples[number].label for number in chosen}, 1)
        else:
            weights = dict(enumerate(weights))
        for name, weight in weights.items():
            wanted = len(order) * weight / sum(weights.values())
            assert abs(counts[name] - wanted) < 1, "a weight is not kept"

    def _chosen(self, where: Any) -> set[int]:
        """The numbers of the samples that a choice may take."""
        numbers = np.arange(len(self.samples))
        if where is None:
            return {*numbers.tolist()}
        if callable(where):
            texts = ("" if each.label is None else str(each.label) for each in self.samples)
            parts = (each.parts.values() for each in self.samples)
            sizes = [
                len(text) + sum(map(len, each)) for text, each in zip(texts, parts, strict=True)
            ]
            return {*numbers[where(SimpleNamespace(bytes=np.array(sizes)))].tolist()}
        if not isinstance(where, dict):
            return {*numbers[where].tolist()}
        labels = where.get("label", [])
        labels = [labels] if isinstance(labels, str | int) else labels
        return {
            number
            for number, sample in enumerate(self.samples)
            if (not labels or {sample.label, sample.key.split("/")[0]} & {*labels})
            and fnmatch(sample.key, where.get("key", "*"))
        }


@dataclass(frozen=True)
class Options:
    """What a loader is asked for, as far as its batches depend on it."""

    size: int  # of a batch, of all ranks together
    order: Values  # batch_size, shuffle, seed and choose
    drop: bool = False
    decode: Any = None  # None, True, a list of extensions, or a larder.Images
    columns: list[str] | None = None
    transforms: dict[str, Callable[[Any], Any]] = field(default_factory=dict)
    map: Callable[[Values, np.random.Generator], Values] | None = None
    collate: Callable[[list[Values]], Any] | None = None


class Single:
    """The batches of a loader."""

    def __init__(self, dataset: Dataset, options: Options) -> None:
        self.dataset, self.options = dataset, options

    def length(self) -> int:
        samples, size = len(self.dataset.epoch(self.options, 0)), self.options.size
        return samples // size if self.options.drop else -(-samples // size)

    def part(self, epoch: int, number: int, rank: int, world: int) -> list[Draw]:
        """The samples of a batch that a rank has; a last one that is not whole is padded.

        It is padded with the samples of the epoch from its own first one on, and after the last of
        them with the first ones of the epoch.
        """
        order, at = self.dataset.epoch(self.options, epoch), number * self.options.size
        draws = order[at : at + self.options.size]
        draws += [order[(at + place) % len(order)] for place in range(-len(draws) % world)]
        return share_of(draws, rank, world)

    def batch(self, draws: list[Draw]) -> Any:
        samples, options = [self.made(draw) for draw in draws], self.options
        if options.collate:
            return options.collate(samples)
        return stacked(samples, self.names(), self.lists)

    def made(self, draw: Draw) -> Values:
        """A sample as it is put into a batch."""
        options = self.options
        values = self.values(self.dataset.samples[draw.sample])
        if options.columns is not None:
            values = {name: values[name] for name in options.columns if name in values}
        for name in values.keys() & options.transforms.keys():
            values[name] = options.transforms[name](values[name])
        if options.map is None:
            return values
        rng = np.random.default_rng()
        rng.bit_generator.state = json.loads(draw.state)
        return options.map(values, rng)

    def values(self, sample: Sample) -> Values:
        """The values of a sample before a function has seen them."""
        kind, options = self.dataset.kind, self.options
        values: Values = {"key": sample.key}
        if sample.label is not None:
            values["label"] = np.int64(sample.label)
        if kind == "built":
            image = decoded(sample.parts["png"], "png")
            return {**values, "image": image, "sum": np.int64(int(image.sum()) * 3)}
        images = options.decode if isinstance(options.decode, list) else [*FIELDS]
        if not options.decode and kind != "decoded":
            images = []
        for ext, data in sample.parts.items():
            value: Any = data if kind == "shards" else np.frombuffer(data, np.uint8)
            if ext in images:
                value = decoded(data, ext)
            values[FIELDS[ext] if ext in images else ext] = value
            if ext in (options.columns or ()):
                values[ext] = value
        return values

    def names(self) -> list[str]:
        """The names that every batch has; none if it has those that its samples have."""
        return [] if self.options.map else self.options.columns or self.fields()

    def fields(self) -> list[str]:
        """All names that a sample of a cache has; none of shards."""
        if self.dataset.kind == "shards":
            return []
        return sorted({name for sample in self.dataset.samples for name in self.values(sample)})

    @property
    def lists(self) -> set[str]:
        """The names that are a list in any batch: files in a cache, whose lengths differ in it."""
        if self.dataset.kind not in ("encoded", "decoded") or self.options.map is not None:
            return set()
        return set(self.dataset.exts) - set(self.options.transforms)


def share_of(draws: list[Draw], rank: int, world: int) -> list[Draw]:
    """The part of a batch that a rank has."""
    share = len(draws) // world
    return draws[rank * share : (rank + 1) * share]


def decoded(data: bytes, ext: str) -> Any:
    """An image in three channels, or of a mask the numbers: docs/reference/images.md."""
    image = Image.open(io.BytesIO(data))
    return np.asarray(image)[:, :, None] if ext == "seg.png" else np.asarray(image.convert("RGB"))


def stacked(samples: list[Values], names: Sequence[str] = (), lists: set[str] = set()) -> Values:  # noqa: B006
    """A batch of samples: arrays of one shape and type are one array, others a list."""
    batch: Values = {}
    for name in names or sorted({name for sample in samples for name in sample}):
        values = [sample.get(name) for sample in samples]
        kinds = {(getattr(value, "shape", None), getattr(value, "dtype", None)) for value in values}
        is_one = len(kinds) == 1 and kinds != {(None, None)} and name not in lists
        batch[name] = np.stack(values) if is_one else values  # type: ignore[arg-type]
    return batch


class Mixed:
    """The batches of a mix, whose choice among its loaders is learned from the simplest mix."""

    def __init__(self, loaders: list[Single], weights: list[float], **options: Any) -> None:
        self.loaders, self.weights, self.options = loaders, weights, options
        self._epochs: list[list[list[Draw]]] = []

    def length(self) -> int:
        return self.options["batches"] or sum(loader.length() for loader in self.loaders)

    def part(self, epoch: int, number: int, rank: int, world: int) -> list[Draw]:
        if len(self._epochs) <= epoch:
            self._learn(epoch + 2)
        return share_of(self._epochs[epoch][number], rank, world)

    def _learn(self, epochs: int) -> None:
        found = [
            loader.dataset.data.loader("train", **loader.options.order, **SIMPLEST)
            for loader in self.loaders
        ]
        mix = larder.mix(zip(found, self.weights, strict=True), **self.options)
        drawn: Counter[int] = Counter()
        self._epochs = []
        for _ in range(epochs):
            batches = [[self._draw(each) for each in batch] for batch in mix]
            assert len(batches) == self.length(), "an epoch has another number of batches"
            self._check(batches, drawn)
            self._epochs.append(batches)

    def _draw(self, spied: Values) -> Draw:
        known = [spied["key"] in loader.dataset.numbers for loader in self.loaders]
        place = known.index(True)
        return self.loaders[place].dataset.draw(spied, place)

    def _check(self, batches: list[list[Draw]], drawn: Counter[int]) -> None:
        """Each loader gives its samples in its own order, as often as its weight says."""
        size, is_by_batch = self.loaders[0].options.size, self.options["by"] == "batch"
        assert {len(batch) for batch in batches} == {size}, "a batch of a mix is not whole"
        counts = Counter(draw.loader for batch in batches for draw in batch)
        for place, weight in enumerate(self.weights):
            wanted = counts.total() * weight / sum(self.weights)
            unit = size if is_by_batch else 1
            assert abs(counts[place] - wanted) < unit, "a weight is not kept"
        for batch in batches:
            assert not is_by_batch or len({draw.loader for draw in batch}) == 1
            for draw in batch:
                loader = self.loaders[draw.loader]
                length = len(loader.dataset.epoch(loader.options, 0))
                epoch, place = divmod(drawn[draw.loader], length)
                wanted_draw = loader.dataset.epoch(loader.options, epoch)[place]
                assert draw.sample == wanted_draw.sample, "a loader of a mix has another order"
                drawn[draw.loader] += 1

    def batch(self, draws: list[Draw]) -> Any:
        if self.options["by"] == "batch":
            return self.loaders[draws[0].loader].batch(draws)
        samples = [self.loaders[draw.loader].made(draw) for draw in draws]
        loaders = [self.loaders[place] for place in {draw.loader for draw in draws}]
        if loaders[0].options.collate:
            return loaders[0].options.collate(samples)
        lists = {name for loader in loaders for name in loader.lists}
        names = {name for sample in samples for name in sample}
        return stacked(samples, [*names.union(*(loader.names() for loader in loaders))], lists)


def differs(got: Any, wanted: Any, where: str = "batch") -> str | None:
    """The first difference of two batches, or None; arrays bit for bit."""
    pairs: list[tuple[Any, Any, str]] = []
    if isinstance(wanted, dict) and isinstance(got, dict):
        if set(got) != set(wanted):
            return f"{where}: names {sorted(got)} instead of {sorted(wanted)}"
        pairs = [(got[name], wanted[name], f"{where}[{name!r}]") for name in wanted]
    elif isinstance(wanted, (list, tuple)) and isinstance(got, (list, tuple)):
        if len(got) != len(wanted):
            return f"{where}: {len(got)} values instead of {len(wanted)}"
        pairs = [(*each, f"{where}[{n}]") for n, each in enumerate(zip(got, wanted, strict=True))]
    elif not _same(got, wanted):
        return f"{where}: {_told(got)} instead of {_told(wanted)}"
    found = (differs(*pair) for pair in pairs)
    return next((each for each in found if each), None)


def _same(got: Any, wanted: Any) -> bool:
    kinds = (np.ndarray, np.generic)
    if not (isinstance(got, kinds) and isinstance(wanted, kinds)):
        return type(got) is type(wanted) and bool(got == wanted)
    alike = (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    return alike and got.tobytes() == wanted.tobytes()


def _told(value: Any) -> str:
    """Tell a value in short; texts of arrays cost more than all else, so none is made before."""
    kind = f"{value.dtype} {value.shape} " if hasattr(value, "dtype") else ""
    return f"{kind}{str(value)[:150]!r}"
