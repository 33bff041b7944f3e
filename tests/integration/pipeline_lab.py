"""A small source of images, and a place to prepare it, for tests of complete runs."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from image_files import saved
from PIL import Image

from larder.jobs.results import RunError
from larder.pipeline.preparing import prepare
from larder.segments.stores import root_url
from larder.store import Store, open_store
from larder.versions.tags import TAG, Tag, read_tag
from tests.support.checker import Published, check_all
from tests.support.runs import between, forget_manifests, run_settings
from tests.support.servers import S3Server
from tests.support.stores import Recorder, Stop, Stopped, StoppingStore

DOCUMENT = dict[str, Any]
DECODED: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
    "shards": {"bytes": 8_000},
    "validate": "decode",
    "cache": {"records": "decoded"},
}
"""Images in two splits and a few shards, with a decoded cache."""


def png(seed: int, width: int = 9, height: int = 7) -> bytes:
    """An image of noise, so that no two are alike."""
    pixels = random.Random(seed).randbytes(3 * width * height)
    return saved(Image.frombytes("RGB", (width, height), pixels))


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


def objects_of(published: Published) -> dict[str, bytes]:
    """By key, the objects that the shards of a version were made from."""
    return {
        f"{sample.key}.{ext}": data
        for samples in published.samples.values()
        for sample in samples
        for ext, data in sample.parts.items()
        if ext != "cls"
    }


def shard_names(published: Published) -> dict[str, str]:
    """sha256 of the shards by name, whatever their segments are called."""
    return {path.rpartition("/")[2]: sha256 for path, sha256 in published.shards.items()}


def failed(lab: Lab, **fields: Any) -> list[str]:
    with pytest.raises(RunError) as caught:
        lab.prepare(**fields)
    return [failure.key for failure in caught.value.report.failures]


def flip(path: Path) -> None:
    """Change a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def write(url: str | Path, objects: Mapping[str, bytes], **options: Any) -> None:
    with opened(url, **options) as store:
        for key, data in objects.items():
            store.put(key, data)


@contextmanager
def opened(url: str | Path, **options: Any) -> Iterator[Store]:
    yield open_store(str(url), **options)


Listing = dict[str, tuple[int, str, int]]


def listing(url: str | Path, **options: Any) -> Listing:
    with opened(url, **options) as store:
        return {
            info.key: (info.size_bytes, info.etag, info.modified_us)
            for page in store.list()
            for info in page
        }


def reach(server: S3Server) -> dict[str, str]:
    return {"endpoint": server.endpoint, "region": server.region}


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

    def compact(self, **more: Any) -> DOCUMENT:
        forget_manifests()
        return prepare(self.settings(**more)._replace(compact=True))

    def recorded(self, **more: Any) -> tuple[DOCUMENT, Recorder]:
        with between(recorder := Recorder()):
            return self.prepare(**more), recorder

    def stopped(self, stop: Stop, **more: Any) -> DOCUMENT | None:
        """The document of a run that may be killed at a write."""
        with between(lambda store: StoppingStore(store, stop)), suppress(Stopped):
            return self.prepare(**more)
        return None

    @property
    def root(self) -> str:
        settings = self.settings()
        return root_url(settings.dataset.name, settings.cluster)

    @contextmanager
    def opened_root(self) -> Iterator[Store]:
        storage = self.settings().cluster.storage
        reachable = self.root.replace("s3://memory-", "memory://")
        with opened(
            reachable, endpoint=storage.access.endpoint, region=storage.access.region
        ) as store:
            yield store

    @property
    def folder(self) -> Path:
        """The root, if that is a directory."""
        return Path(self.root.removeprefix("file://"))

    def files(self, pattern: str) -> list[Path]:
        """The published files below the root that match, work left out, in order."""
        found = sorted(self.folder.rglob(pattern))
        published = (path for path in found if "work" not in path.relative_to(self.folder).parts)
        return [path for path in published if path.is_file()]

    def file(self, pattern: str) -> Path:
        """The one of them."""
        (path,) = self.files(pattern)
        return path

    def check(self) -> dict[str, Published]:
        with self.opened_root() as root:
            return check_all(root)

    def only(self) -> Published:
        (published,) = self.check().values()
        return published

    @property
    def tag(self) -> Tag:
        with self.opened_root() as root:
            tag = read_tag(root, TAG)
        assert tag is not None
        return tag

    def newest(self) -> Published:
        """The version that the tag names; everything is checked."""
        return self.check()[self.tag.version]

    def add(self, objects: Mapping[str, bytes]) -> None:
        write(str(self.source), objects)

    def remove(self, *keys: str) -> None:
        with opened(str(self.source)) as store:
            for key in keys:
                store.delete(key)


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


def memory_lab(
    folder: Path, objects: Mapping[str, bytes] | None = None, *, name: str = "", **fields: Any
) -> Lab:
    """Between two buckets in memory: quick, and etags follow from the bytes. Runs need `between`.

    The source is ``memory://NAME-source``, the storage ``memory://NAME``.
    """
    name = name or uuid.uuid4().hex
    source = f"memory://{name}-source"
    write(source, images() if objects is None else objects)
    return Lab(source, f"s3://memory-{name}", folder / name, fields)
