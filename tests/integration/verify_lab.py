"""Damage to published files, and verifications of it, for tests."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipeline_lab import Lab, directory_lab, images, png

from larder.jobs.step_runner import InlineRunner
from larder.progress import StageTimes
from larder.store.base import Store
from larder.verify.verify_job import DamagedError
from larder.verify.verifying import VerifySettings, verify
from larder.versions.publish import read_version
from tests.support.runs import between

SPLITS = {"train": ["a/**", "b/**"], "validation": "c/**"}
DOCUMENT = dict[str, Any]
DOCUMENTS = ("version.json", "segment.json", "cache.json")
"""Nothing else has what is in them: a repair leaves them as they are."""

Damage = Callable[[bytes, bytes], bytes | None]
"""Makes damaged bytes of those of a file and of a sibling; None removes the file."""


def _flipped(data: bytes, _: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 0x10]) + data[middle + 1 :]


DAMAGES: dict[str, Damage] = {
    "replaced by a sibling": lambda data, sibling: sibling,
    "truncated by one": lambda data, _: data[:-1],
    "middle byte flipped": _flipped,
    "longer by one": lambda data, _: data + b"\0",
    "emptied": lambda data, _: b"",
    "removed": lambda data, _: None,
}


def grown_lab(folder: Path, *, storage: str = "", **fields: Any) -> Lab:
    """Two versions, of which the second has two segments and some omitted rows."""
    defaults: dict[str, Any] = {
        "splits": SPLITS,
        "growth": {"removals": "omit"},
        "cache": {"records": "encoded"},
        "shards": {"bytes": 8_000},
    }
    lab = directory_lab(folder, images("abc", each=8), **{**defaults, **fields})
    lab = replace(lab, storage=storage or lab.storage)
    with between():
        lab.prepare()
        lab.remove("a/00.png", "a/00.json", "a/02.png", "b/03.png", "c/06.png")
        lab.add({"a/zz.png": png(7), "c/00.png": png(8)})
        lab.prepare()
    return lab


def text_lab(folder: Path, **fields: Any) -> Lab:
    objects = {f"{'ab'[n % 2]}/{n:02}.txt": b"%d" % n * (300 + n) for n in range(12)}
    defaults: dict[str, Any] = {"cache": None, "validate": "none", "shards": {"bytes": 6_000}}
    lab = directory_lab(folder, objects, **{**defaults, **fields})
    lab.prepare()
    return lab


def verified(lab: Lab, **asked: Any) -> DOCUMENT:
    runner = InlineRunner(2, StageTimes(), threading.Event())
    try:
        return verify(VerifySettings(lab.settings(), **asked), runner)
    except DamagedError as error:
        return error.document


def findings(document: DOCUMENT) -> dict[str, DOCUMENT]:
    return {row["path"]: row for row in document["findings"]}


def published(root: Store) -> dict[str, bytes]:
    """All files that are published: neither work nor the mirror."""
    keys = [info.key for page in root.list() for info in page]
    return {key: bytes(root.get(key)) for key in keys if not is_work(key)}


def everything(root: Store) -> dict[str, bytes]:
    return {info.key: bytes(root.get(info.key)) for page in root.list() for info in page}


def replaced(root: Store) -> list[str]:
    return [info.key for page in root.list("work/replaced/") for info in page]


def forget_replaced(root: Store) -> list[bytes]:
    """Delete what repairs have replaced, so that it is no spare of another file."""
    contents = [bytes(root.get(key)) for key in replaced(root)]
    for key in replaced(root):
        root.delete(key)
    return contents


def shards(root: Store) -> list[str]:
    return [key for key in published(root) if key.endswith(".tar")]


def flipped(data: bytes) -> bytes:
    """With another bit in the content of a shard's first sample."""
    return data[:1600] + bytes([data[1600] ^ 1]) + data[1601:]


def is_work(key: str) -> bool:
    return key.startswith(("work/", "mirror/", "leases/")) or "/work/" in key or "/runs/" in key


def listed_files(root: Store, version: str) -> list[str]:
    document = read_version(root, version)
    assert document is not None
    segments = {use.id for use in document.segments}
    return [
        key
        for key in published(root)
        if key.startswith("tags/") or key.split("/")[1] in {version, *segments}
    ]


def sibling_of(key: str, files: dict[str, bytes]) -> str:
    """Another file of the same kind, if there is one."""
    suffix, folder = key.rpartition(".")[2], key.rpartition("/")[0]
    same = [other for other in files if other != key and other.endswith(suffix)]
    near = [other for other in same if other.startswith(folder)]
    different = [other for other in (*near, *same) if files[other] != files[key]]
    return different[0] if different else next(other for other in files if other != key)


@contextmanager
def damaged(root: Store, key: str, data: bytes | None) -> Iterator[None]:
    before = bytes(root.get(key))
    try:
        if data is None:
            root.delete(key)
        else:
            root.put(key, data)
        yield
    finally:
        root.put(key, before)
