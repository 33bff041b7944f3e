"""A small source of images, and a place to prepare it, for tests of complete runs."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from larder.pipeline.job import root_url
from larder.pipeline.prepare import prepare
from larder.store import Store, open_store
from tests.support.checker import Published, check_all
from tests.support.runs import forget_manifests, run_settings

DOCUMENT = dict[str, Any]


def png(seed: int, width: int = 9, height: int = 7) -> bytes:
    """An image of noise, so that no two are alike."""
    pixels = random.Random(seed).randbytes(3 * width * height)
    target = io.BytesIO()
    Image.frombytes("RGB", (width, height), pixels).save(target, "PNG")
    return target.getvalue()


def images(classes: str = "abc", each: int = 4) -> dict[str, bytes]:
    """``a/00.png`` and so on; the first image of each class also has a part ``json``."""
    found = {
        f"{name}/{number:02}.png": png(100 * place + number)
        for place, name in enumerate(classes)
        for number in range(each)
    }
    return found | {f"{name}/00.json": f'{{"of": "{name}"}}'.encode() for name in classes}


def contents(published: Published) -> dict[tuple[str, str], dict[str, bytes]]:
    """By split and key, the parts of each sample, and the name of its class in place of a number.

    So a version that has grown compares with a first build.
    """
    found: dict[tuple[str, str], dict[str, bytes]] = {}
    for split, samples in published.samples.items():
        for sample in samples:
            assert (split, sample.key) not in found
            parts = dict(sample.parts)
            if sample.label is not None:
                parts["cls"] = published.version.classes[sample.label].encode()
            found[split, sample.key] = parts
    return found


def write(url: str | Path, objects: Mapping[str, bytes], **options: Any) -> None:
    """Put objects into a store."""
    with opened(url, **options) as store:
        for key, data in objects.items():
            store.put(key, data)


@contextmanager
def opened(url: str | Path, **options: Any) -> Iterator[Store]:
    yield open_store(str(url), **options)


Listing = dict[str, tuple[int, str, int]]


def listing(url: str | Path, **options: Any) -> Listing:
    """Size, etag and time of every object."""
    with opened(url, **options) as store:
        return {
            info.key: (info.size_bytes, info.etag, info.modified_us)
            for page in store.list()
            for info in page
        }


@dataclass(frozen=True)
class Lab:
    """A source, a storage and a directory for configs; ``fields`` are the dataset's."""

    source: str | Mapping[str, Any]
    storage: str | Mapping[str, Any]
    output: Path
    fields: Mapping[str, Any]

    def settings(self, **more: Any) -> Any:
        return run_settings(self.source, self.storage, self.output, **{**self.fields, **more})

    def prepare(self, **more: Any) -> DOCUMENT:
        """As a new process would."""
        forget_manifests()
        return prepare(self.settings(**more))

    def plan(self, **more: Any) -> DOCUMENT:
        return prepare(self.settings(**more), plan_only=True)

    @property
    def root(self) -> str:
        settings = self.settings()
        return root_url(settings.dataset, settings.cluster)

    @contextmanager
    def opened_root(self) -> Iterator[Store]:
        storage = self.settings().cluster.storage
        with opened(
            self.root, endpoint=storage.access.endpoint, region=storage.access.region
        ) as store:
            yield store

    def check(self) -> dict[str, Published]:
        """Everything that is published, checked."""
        with self.opened_root() as root:
            return check_all(root)

    def only(self) -> Published:
        """The one version."""
        (published,) = self.check().values()
        return published


def directory_lab(folder: Path, objects: Mapping[str, bytes] | None = None, **fields: Any) -> Lab:
    """From one directory to another; labels are folders, shards hold few images."""
    source = folder / "source"
    write(source, images() if objects is None else objects)
    defaults: dict[str, Any] = {
        "labels": {"from": "folder"},
        "shards": {"bytes": 6_000},
        "cache": {"records": "decoded"},
        "validate": "decode",
    }
    return Lab(str(source), str(folder / "local"), folder / "out", {**defaults, **fields})
