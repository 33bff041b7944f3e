"""Growing datasets between two buckets in memory, or from a directory, with every call counted."""

import hashlib
import random
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline_lab import DOCUMENT, Lab

from tests.support.checker import Published
from tests.support.memory import forget
from tests.support.runs import between, forget_manifests
from tests.support.stores import RecordedCall, Recorder, RecordingStore

Objects = dict[str, bytes]

KINDS = {
    "shards": re.compile(r"segments/\w+/shards/"),
    "caches": re.compile(r"segments/\w+/caches/\w+/.+\.mdb$"),
    "readers": re.compile(r"segments/\w+/index/\w+/|versions/\w+/readers/"),
    "mirror": re.compile(r"mirror/"),
    "source": re.compile(r"source/"),
}
"""What is counted by itself; all else is ``documents``: manifests, indexes, receipts, JSON.

``readers`` are the indexes of other readers: what their formats take for each packed sample, and a
line for each listed shard.
"""

WRITTEN = ("put", "commit", "upload")
READ = ("get", "open")


def kind_of(key: str) -> str:
    return next((kind for kind, known in KINDS.items() if known.match(key)), "documents")


@dataclass(frozen=True)
class Costs:
    """The document of one run, and all calls of its stores, with keys as below the root.

    Those of the source begin with ``source/``.
    """

    document: DOCUMENT
    calls: tuple[RecordedCall, ...]

    def written(self, *kinds: str) -> int:
        return sum(call.size_bytes for call in self._calls(WRITTEN, kinds))

    def wrote(self, *kinds: str) -> list[str]:
        return [call.key for call in self._calls(WRITTEN, kinds)]

    def read(self, *kinds: str) -> int:
        return sum(call.size_bytes for call in self._calls(READ, kinds))

    def opened(self, *kinds: str) -> list[str]:
        return [call.key for call in self._calls(READ, kinds)]

    @property
    def requests(self) -> int:
        return len(self.calls)

    def _calls(self, methods: tuple[str, ...], kinds: tuple[str, ...]) -> Iterator[RecordedCall]:
        for call in self.calls:
            if call.method in methods and (not kinds or kind_of(call.key) in kinds):
                yield call


def counted(lab: Lab, run: Callable[..., DOCUMENT], **fields: Any) -> Costs:
    with between(recorder := Recorder()):
        document = run(**fields)
    return Costs(document, tuple(call for each in recorder.stores for call in _named(lab, each)))


def _named(lab: Lab, store: RecordingStore) -> Iterator[RecordedCall]:
    root = lab.root.replace("s3://memory-", "memory://").rstrip("/")
    prefix = store.url.rstrip("/").removeprefix(root).strip("/")
    if not store.url.startswith(root):
        prefix = "source"
    for call in store.calls:
        key = f"{prefix}/{call.key}" if prefix else call.key
        yield RecordedCall(call.method, key, call.size_bytes)


class Field(Lab):
    """A lab whose source changes from run to run."""

    def run(self, **fields: Any) -> Costs:
        return counted(self, self.prepare, **fields)

    def compacted(self) -> Costs:
        return counted(self, self.compact)

    def planned(self, **fields: Any) -> Costs:
        """As a new process would plan."""
        forget_manifests()
        return counted(self, self.plan, **fields)

    def latest(self, document: DOCUMENT) -> Published:
        return self.check()[document["version"]]


@contextmanager
def field(folder: Path, objects: Mapping[str, bytes], **fields: Any) -> Iterator[Field]:
    """Between two buckets in memory, whose etags are md5: 32 hex digits."""
    name = uuid.uuid4().hex
    lab = Field(
        f"memory://{name}-source", f"s3://memory-{name}", folder / name, {"mirror": True, **fields}
    )
    lab.add(objects)
    try:
        yield lab
    finally:
        forget(name)
        forget(f"{name}-source")


def blob(name: str, size_bytes: int) -> bytes:
    """Bytes that no compression makes smaller, the same for the same name."""
    return random.Random(name).randbytes(size_bytes)


def blobs(count: int, size_bytes: int, *, first: int = 0, classes: str = "abcd") -> Objects:
    """``CLASS/HEX.bin``, so that the keys of later ones lie anywhere between those of earlier."""
    found = {}
    for number in range(first, first + count):
        name = hashlib.md5(str(number).encode(), usedforsecurity=False).hexdigest()[:10]
        key = f"{classes[number % len(classes)]}/{name}.bin"
        found[key] = blob(key, size_bytes)
    return found
