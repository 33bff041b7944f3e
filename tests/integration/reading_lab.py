"""A version in a bucket, a Python with the base packages alone to read it, and killed copies."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from larder.cache.build import build_file
from larder.cache.record import Codec
from larder.cache.schema import Field, RecordSchema
from larder.manifest.sealed import seal
from larder.store import download, open_store
from larder.store.own_files import read_digest
from larder.versions import layout
from larder.versions.documents import CacheFacts, CacheFile, SegmentUse, SplitFacts, VersionDocument
from larder.versions.tags import Tag

ID = "ab" * 16

LIGHT = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        heavy = ("prefect", "pyarrow", "pydantic", "yaml", "boto3", "gcsfs", "PIL", "tensorflow")
        if name.partition(".")[0] in heavy:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Blocker())
"""
"""Begins a program that cannot import what a light install lacks."""


def publish_toy(url: str, folder: Path) -> str:
    """Publish a version of three records as `ID` and ``latest``; returns the cache's sha256."""
    segment, cache = "5" * 32, "c" * 32
    rows = ({"x": number} for number in range(3))
    path = folder / "a.mdb"
    place = layout.cache_place(segment, cache, "train")
    schema = RecordSchema((Field("x", "int64"),))
    facts = build_file(
        Codec(schema, place).encode_each(rows), schema, path, limit_bytes=1 << 20, place=place
    )
    shard = layout.shard_key(segment, "train", "t-000000.tar")
    path_there = layout.cache_file_key(place, facts.sha256)
    digests = (facts.sha256, facts.digest)
    part = CacheFile(path_there, facts.bytes, *digests, 3, segment=segment, split="train")
    version = VersionDocument(
        dataset="toy",
        id=ID,
        digest="d" * 64,
        inputs="1" * 64,
        segments=(SegmentUse(segment, cache=cache),),
        splits={"train": SplitFacts(3, 1, 10, (shard,))},
        classes=(),
        files=(),
        cache=CacheFacts("encoded", {"train": (part,)}),
    )
    store = open_store(url)
    store.upload(part.path, path)
    store.put(layout.version_key(ID), seal(version))
    store.put(layout.tag_key("latest"), seal(Tag(ID, version.inputs)))
    return facts.sha256


def killed_while_it_copies(copy: Callable[[Path], object], folder: Path, after: int) -> None:
    """Copy to a folder, in a process that is killed within the file after so many."""

    def deadly(store: Any, key: str, write: Callable[[Any], object]) -> Any:
        nonlocal after
        after -= 1
        if after < 0:
            write(b"begun")
            os.kill(os.getpid(), signal.SIGKILL)
        return read_digest(store, key, write)

    def run() -> None:
        download.read_digest = deadly  # type: ignore[assignment]
        copy(folder)

    killed = multiprocessing.get_context("fork").Process(target=run)
    killed.start()
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
