"""Datasets in every place, and what a row asks of them: of Larder, and of the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import larder
from tests.oracle import functions, sets
from tests.oracle.oracle import Dataset, Mixed, Options, Single
from tests.oracle.rows import Row

DAMAGED = (3, 10, -2)  # of the samples of a version
KINDS = {"encoded": "encoded", "decoded": "decoded", "built": "built"}
MASKS = larder.Images(masks=["seg.png"])
DECODE: dict[str, Any] = {"no": None, "yes": True, "list": ["png"], "masks": MASKS}
MAPS: dict[str, Any] = {
    "crop": functions.crop,
    "noise": functions.noise,
    "keeping": functions.Keeping(),
}
COLLATES = {"listed": functions.listed, "sized": functions.sized}


@dataclass
class Lab:
    """A folder with datasets that are prepared when a row first needs them."""

    place: Path
    s3: Callable[[], Any]  # an S3 server, started when needed
    gcs: Callable[[], Any]
    _ready: dict[str, Dataset] = field(default_factory=dict)
    _data: dict[str, Any] = field(default_factory=dict)
    _choices: dict[tuple[str, str], Any] = field(default_factory=dict)

    def dataset(self, form: str) -> Dataset:
        """A dataset in a directory, as the oracle knows it."""
        if form not in self._ready:
            root = self.place / "storage/larder" / form
            if not (root / "tags/latest.json").exists():
                sets.prepare(self.place, form)
            self._ready[form] = Dataset(f"{root}@latest", root, KINDS.get(form, "shards"))
        return self._ready[form]

    def data(self, form: str, place: str, bad: bool) -> Any:
        """A dataset that is opened in a place, and brought there when first asked for."""
        known = f"{form} {place} {bad}"
        if known not in self._data:
            url, endpoint = self._brought(form, place, bad)
            self._data[known] = larder.open(url, endpoint=endpoint)
        return self._data[known]

    def _brought(self, form: str, place: str, bad: bool) -> tuple[str, str | None]:
        dataset = self.dataset(form)
        if bad:
            keys = [dataset.samples[number].key for number in DAMAGED]
            if not (self.place / "bad/larder" / form).exists():
                sets.damage(self.place, form, keys, self.place / "bad")
            return f"{self.place}/bad/larder/{form}@latest", None
        if place == "directory":
            return f"{self.place}/storage/larder/{form}@latest", None
        server = self.gcs() if place == "gcs" else self.s3()
        server.create_bucket("oracle")
        bucket = "gs://oracle" if place == "gcs" else "s3://oracle"
        sets.upload(self.place, form, bucket, server.endpoint)
        return f"{bucket}/larder/{form}@latest", server.endpoint

    def choice(self, form: str, name: str) -> Any:
        """A choice by its name; one object each, as what is learned is kept by it."""
        if (form, name) not in self._choices:
            self._choices[form, name] = self._choice(form, name)
        return self._choices[form, name]

    def _choice(self, form: str, name: str) -> Any:
        dataset = self.dataset(form)
        count = len(dataset.samples)
        if name == "all":
            return None
        if name == "weights":
            return larder.Choice(weights=np.arange(count) % 5 + 0.5)
        mixture = {"label": [0, f"b{form}"]}
        return {
            "label": larder.Choice({"label": f"a{form}"}),
            "key": larder.Choice({"key": "**/*[0-6]"}),
            "bytes": larder.Choice(functions.is_large),
            "numbers": larder.Choice(np.array([*range(1, count, 3)])),
            "booleans": larder.Choice(np.arange(count) % 4 != 1),
            "limit": larder.Choice(limit=31),
            "tenth": larder.Choice(limit=0.25),
            "balanced": larder.Choice(weights="balanced"),
            "mixture": larder.Choice(mixture, limit=25, weights="balanced"),
        }[name]


@dataclass(frozen=True)
class Asked:
    """A row: loaders of Larder for any rank, and what they must give."""

    lab: Lab
    row: Row
    number: int = 0  # one for each row that is played in a process

    @property
    def forms(self) -> list[str]:
        return list(self.row["form"].split())

    @cached_property
    def weights(self) -> list[float]:
        return [1.0, 2.0, 0.7, 1.5][: len(self.forms)]

    def size(self, world: int) -> int:
        """The samples of a batch of all ranks."""
        kind = self.row["batch"]
        return {"per rank": 4 * world, "drop": 6, "drop 12": 12}.get(kind) or int(kind)

    def shuffle(self, form: str, world: int) -> Any:
        order, size = self.row["order"], self.size(world)
        if order == "lanes" and size > 12:
            order = "window"
        return {
            "none": False,
            "full": larder.Shuffle("full"),
            "window": larder.Shuffle("window"),
            "lanes": larder.Shuffle("window", window=2 * size, lanes=2),
        }[order]

    def options(self, form: str, world: int) -> Options:
        """For the oracle."""
        row = self.row
        dataset = self.lab.dataset(form)
        decoded = row["decode"] != "no" or form in ("decoded", "built")
        label = ["label"] if form != "sorted" else []
        main = "image" if decoded else "png"
        columns = {
            "few": ["key", *label, "sum" if form == "built" else "png" if not decoded else "image"],
            "image": [*label, main],
            "text": ["txt", "key"] if form != "built" else ["key", "sum"],
        }.get(row["columns"])
        names: dict[str, dict[str, Any]] = {
            "text": {"txt": functions.head},
            "image": {main: functions.flipped},
        }
        return Options(
            batch_size=self.size(world),
            shuffle=self.shuffle(form, world),
            seed=row["seed"],
            choose=self.lab.choice(form, row["choose"]),
            drop=row["batch"].startswith("drop"),
            decode=DECODE[row["decode"]] if dataset.kind in ("shards", "encoded") else None,
            columns=tuple(columns) if columns else None,
            transforms=names.get(row["transforms"], {}),
            map=MAPS.get(row["map"]),
            collate=COLLATES.get(row["collate"]),
        )

    def wanted(self, world: int) -> Single | Mixed:
        """What any loader of the row gives."""
        found = [Single(self.lab.dataset(form), self.options(form, world)) for form in self.forms]
        if "by" not in self.row:
            return found[0]
        row = self.row
        return Mixed(found, self.weights, row["by"], row["seed"], row["length"])

    def arguments(self, form: str, rank: int, world: int, workers: Any) -> dict[str, Any]:
        """Of a loader, or of a reader of a framework."""
        row, options = self.row, self.options(form, world)
        size: Any = options.batch_size
        if row["batch"] == "per rank":
            size = larder.Batches(per_rank=4)
        elif options.drop:
            size = larder.Batches(size, even="drop")
        reading: dict[str, Any] = {"check": row["check"]}
        if row["memory"]:
            reading["memory_bytes"] = row["memory"]
        if row["bad"]:
            reading["on_error"] = "skip"
        if row["place"] == "keep":
            reading["keep"] = str(self.lab.place / "kept")
        found = {
            "batch_size": size,
            "shuffle": options.shuffle,
            "seed": options.seed,
            "rank": rank,
            "world": world,
            "choose": options.choose,
            "columns": list(options.columns) if options.columns else None,
            "transforms": options.transforms or None,
            "map": options.map,
            "collate": options.collate,
            "workers": workers,
            "reading": larder.Reading(**reading),
        }
        if options.decode:
            found["decode"] = options.decode
        if row["map"] == "keeping":
            found["map"] = functions.Keeping(self.number)
        return {name: value for name, value in found.items() if value is not None}

    def data(self, form: str, place: str | None = None) -> Any:
        return self.lab.data(form, place or self.row["place"], self.row["bad"])

    def loader(self, rank: int, world: int, workers: Any, place: str | None = None) -> Any:
        """A loader of Larder, or a mix."""
        found = [
            self.data(form, place).loader("train", **self.arguments(form, rank, world, workers))
            for form in self.forms
        ]
        if "by" not in self.row:
            return found[0]
        row = self.row
        pairs = list(zip(found, self.weights, strict=True))
        return larder.mix(pairs, seed=row["seed"], by=row["by"], batches=row["length"])

    def bad(self, form: str) -> set[int]:
        """The samples that cannot be read."""
        count = len(self.lab.dataset(form).samples)
        return {number % count for number in DAMAGED} if self.row["bad"] else set()


def changed(asked: Asked, **options: Any) -> Asked:
    """The row with other options."""
    return replace(asked, row={**asked.row, **options})
