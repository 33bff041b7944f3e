"""Datasets in every place, and what a row asks of them: of Larder, and of the oracle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import larder
from tests.oracle import functions, sets
from tests.oracle.oracle import Dataset, Mixed, Options, Single
from tests.oracle.rows import Row

WEIGHTS = [1.0, 2.0, 0.7, 1.5]  # of the loaders of a mix
DAMAGED = (3, 10, -2)  # of the samples of a version
KINDS = {"encoded": "encoded", "decoded": "decoded", "built": "built"}
MASKS = larder.Images(masks=["seg.png"])
DECODE: dict[str, Any] = {"no": None, "yes": True, "list": ["png"], "masks": MASKS}
KEEPING = functions.Keeping()
MAPS: dict[str, Any] = {"crop": functions.crop, "noise": functions.noise, "keeping": KEEPING}
COLLATES = {"listed": functions.listed, "sized": functions.sized, "kept": KEEPING.collated}


@cache
def _keeping(row: int) -> tuple[functions.Keeping, Any]:
    """The functions of a row that keep; those of all loaders of a mix are the same."""
    keeping = functions.Keeping(row)
    return keeping, keeping.collated


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
        number = min(sample.label or 0 for sample in dataset.samples)
        mixture = {"label": [number, f"b{form}"]}
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

    def options(self, form: str, world: int) -> Options:
        """For the oracle."""
        row, kind = self.row, self.lab.dataset(form).kind
        sizes = {"per rank": 4 * world, "drop": 6, "drop 12": 12}
        size = sizes.get(row["batch"]) or int(row["batch"])
        drop = row["batch"].startswith("drop")
        window = larder.Shuffle("window")
        lanes = larder.Shuffle("window", window=2 * size, lanes=2) if size <= 12 else window
        orders = {"none": False, "full": larder.Shuffle("full"), "window": window, "lanes": lanes}
        label = ["label"] if form != "sorted" else []
        main = "image" if row["decode"] != "no" or kind in ("decoded", "built") else "png"
        columns = {
            "few": ["key", *label, "sum" if form == "built" else main],
            "image": [*label, main],
            "text": ["key", "sum" if form == "built" else "txt"],
        }
        names: dict[str, Any] = {
            "text": {"txt": functions.head},
            "image": {main: functions.flipped},
            "kept": {main: KEEPING.value},
        }
        return Options(
            size,
            {
                "batch_size": larder.Batches(size, even="drop" if drop else "pad"),
                "shuffle": orders[row["order"]],
                "seed": row["seed"],
                "choose": self.lab.choice(form, row["choose"]),
            },
            drop=drop,
            decode=DECODE[row["decode"]] if kind in ("shards", "encoded") else None,
            columns=columns.get(row["columns"]),
            transforms=names.get(row["transforms"], {}),
            map=MAPS.get(row["map"]),
            collate=COLLATES.get(row["collate"]),
        )

    def wanted(self, world: int) -> Single | Mixed:
        """What any loader of the row gives."""
        found = [Single(self.lab.dataset(form), self.options(form, world)) for form in self.forms]
        return Mixed(found, WEIGHTS[: len(found)], **self._mix()) if "by" in self.row else found[0]

    def _mix(self) -> dict[str, Any]:
        row = self.row
        return {"by": row["by"], "seed": row["seed"], "batches": row["length"]}

    def loader(self, rank: int, world: int, workers: Any, place: str | None = None) -> Any:
        """A loader of Larder, or a mix."""
        found = [
            self.lab.data(form, place or self.row["place"], self.row["bad"]).loader(
                "train", **self._arguments(form, world), rank=rank, world=world, workers=workers
            )
            for form in self.forms
        ]
        pairs = zip(found, WEIGHTS[: len(found)], strict=True)
        return larder.mix(pairs, **self._mix()) if "by" in self.row else found[0]

    def _arguments(self, form: str, world: int) -> dict[str, Any]:
        row, options = self.row, self.options(form, world)
        reading: dict[str, Any] = {"check": row["check"]}
        if row["memory"]:
            reading["memory_bytes"] = row["memory"]
        if row["bad"]:
            reading["on_error"] = "skip"
        if row["place"] == "keep":
            reading["keep"] = str(self.lab.place / "kept")
        found = {
            **options.order,
            "decode": options.decode,
            "columns": options.columns,
            "transforms": options.transforms,
            "map": options.map,
            "collate": options.collate,
            "reading": larder.Reading(**reading),
        }
        if row["batch"] == "per rank":
            found["batch_size"] = larder.Batches(per_rank=4)
        keeping, collated = _keeping(self.number)
        if row["map"] == "keeping":
            found["map"] = keeping
        if row["collate"] == "kept":
            found["collate"] = collated
        if row["transforms"] == "kept":
            found["transforms"] = dict.fromkeys(options.transforms, keeping.value)
        return {name: value for name, value in found.items() if value is not None}

    def bad(self, form: str) -> set[int]:
        """The samples that cannot be read."""
        count = len(self.lab.dataset(form).samples)
        return {number % count for number in DAMAGED} if self.row["bad"] else set()
