"""Files to pack, and the folder in which they are packed."""

from __future__ import annotations

import os
import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from larder.manifest.manifest_files import ManifestWriter
from larder.manifest.schemas import SAMPLE_ORDER
from larder.store import Store, open_store

SHARD_BYTES = 150_000_000
FOLDERS = 100

_SIGMA = 0.5


@dataclass(frozen=True, slots=True)
class Body:
    """Files to pack: ``name``, how many, and their mean size in bytes."""

    name: str
    files: int
    mean_bytes: int
    sigma: float = _SIGMA
    """Of the lognormal sizes; 0: all files are equally long."""

    def make(self, folder: Path) -> int:
        """Write the files: class folders, bytes that do not compress; returns their total."""
        rng = random.Random(7)
        scale = self.mean_bytes / 2.718281828 ** (self.sigma**2 / 2)
        total = 0
        for number in range(self.files):
            parent = folder / f"n{number * FOLDERS // self.files:08d}"
            if number * FOLDERS % self.files < FOLDERS:  # the first of its folder
                parent.mkdir(parents=True, exist_ok=True)
            size = max(1, round(rng.lognormvariate(0, self.sigma) * scale))
            path = f"{parent}/{parent.name}_{number}.jpg"
            with open(path, "wb") as file:
                file.write(rng.randbytes(size))
            total += size
        return total


@dataclass(frozen=True, slots=True)
class Setting:
    """One set of files and what is packed from it, in a separate folder."""

    folder: Path

    def prepare(self, body: Body) -> int:
        """Make the files, and what everybody needs to know of them; returns their bytes."""
        total = body.make(self.files)
        order_samples(open_store(str(self.files)), self.sample_order)
        keys = sorted(str(path.relative_to(self.files)) for path in self.files.rglob("*.jpg"))
        self.names.write_text("".join(f"{key}\n" for key in keys))
        return total

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def out(self) -> Path:
        """Where the shards go."""
        return self.folder / "out"

    @property
    def sample_order(self) -> Path:
        return self.folder / "order.parquet"

    @property
    def names(self) -> Path:
        """The files' names, a line each, in the order of the sample order."""
        return self.folder / "names.txt"

    def keys(self) -> list[str]:
        """The files, in the order of the sample order."""
        return self.names.read_text().splitlines()

    def clear(self) -> None:
        """Remove the output, and let the disk come to rest."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir(parents=True)
        os.sync()


def order_samples(source: Store, path: Path) -> None:
    """The sample order of the files, as the plan stage leaves it."""
    rows = (
        {
            "split": "train",
            "key": info.key.removesuffix(".jpg"),
            "label": int(info.key[1:9]),
            "parts": [
                {
                    "ext": "jpg",
                    "key": info.key,
                    "size_bytes": info.size_bytes,
                    "etag": info.etag,
                    "unchanged": False,
                }
            ],
        }
        for page in source.list()
        for info in page
    )
    with ManifestWriter(path, SAMPLE_ORDER) as manifest:
        manifest.append_batch(pa.RecordBatch.from_pylist(list(rows), SAMPLE_ORDER))
