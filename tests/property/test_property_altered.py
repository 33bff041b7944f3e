"""Versions that were altered consistently are not intact, or every sample reads as it was packed.

Every digest that a document has of an altered file is made right, as is every checksum inside it.
"""

import hashlib
import io
import json
import random
import tarfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from required import nightly

import larder
from larder.jobs.runner import InlineRunner
from larder.manifest.sealed import seal
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.readers.data import Data
from larder.store import open_store
from larder.verify.findings import DamagedError
from larder.verify.run import VerifySettings, verify
from larder.versions.arrays import array_header, read_array, read_directory, write_archive
from larder.versions.index import BLOCKS, NONE, checksum
from tests.support.runs import run_settings

SAMPLES = 12
Packed = dict[str, dict[str, bytes]]


@dataclass
class Version:
    """A small version in a directory; ``packed`` is what its samples were made of."""

    settings: Any
    root: Path
    packed: Packed

    @property
    def rows(self) -> Path:
        (path,) = self.root.glob("segments/*/index/rows-*.npz")
        return path

    @property
    def sources(self) -> Path:
        (path,) = self.root.glob("segments/*/index/sources-*.parquet")
        return path

    @property
    def shards(self) -> list[Path]:
        return sorted(path for path in self.root.glob("segments/*/shards/train/*"))

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a file, and correct the documents that name it."""
        path.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        for document in self.root.glob("*/*/*.json"):
            plain = json.loads(document.read_bytes())
            if _named(plain, str(path.relative_to(self.root)), len(data), digest):
                plain.pop("self_sha256")
                document.write_bytes(seal(plain))

    def is_intact(self) -> bool:
        try:
            verify(
                VerifySettings(self.settings),
                InlineRunner(1, StageTimes(), threading.Event()),
            )
        except DamagedError:
            return False
        return True

    def read(self) -> Packed:
        data: Data = larder.open(f"{self.root}@latest")
        return {sample.key: dict(sample.parts) for sample in data.samples("train")}


def _named(plain: Any, path: str, size_bytes: int, digest: str) -> bool:
    if isinstance(plain, list):
        return any(_named(each, path, size_bytes, digest) for each in plain)
    if not isinstance(plain, dict):
        return False
    mine = plain.get("path") == path
    if mine:
        plain.update(bytes=size_bytes, sha256=digest)
    return any(_named(each, path, size_bytes, digest) for each in plain.values()) or mine


Arrays = dict[str, np.ndarray]


def arrays_of(data: bytes) -> Arrays:
    members = read_directory(data, len(data))
    return {
        name: read_array(data[each.offset : each.offset + each.bytes]).copy()
        for name, each in members.items()
    }


def archived(arrays: Arrays, folder: Path) -> bytes:
    """The arrays as a file, with the checksums of its only block made right."""
    sums = (checksum(arrays[name]) for name in ("rows", "parts", "keys"))
    arrays["blocks"] = np.array([(0, 0, *sums)], BLOCKS)
    paths = {}
    for name, array in arrays.items():
        paths[name] = folder / f"{name}.npy"
        paths[name].write_bytes(array_header(array.dtype, len(array)) + array.tobytes())
    write_archive(folder / "made.npz", paths)
    return (folder / "made.npz").read_bytes()


class Altered:
    """The arrays of an index, and what changes them."""

    def __init__(self, version: Version, dice: random.Random) -> None:
        self.arrays = arrays_of(version.rows.read_bytes())
        self.dice = dice
        self.names = [name.decode() for name in self.arrays["names"].tolist()]
        self.shards = {path.name: bytearray(path.read_bytes()) for path in version.shards}
        rows = self.arrays["rows"]
        self.starts = np.concatenate(([0], rows["part_end"][:-1]))
        self.row = dice.randrange(len(rows))
        self.other = (self.row + dice.randrange(1, len(rows))) % len(rows)
        placed = [n for n in self.parts_of(self.row) if self.part(n)["offset"] != NONE]
        self.chosen = dice.choice(placed)

    def part(self, number: int) -> Any:
        return self.arrays["parts"][number]

    def parts_of(self, row: int) -> range:
        return range(int(self.starts[row]), int(self.arrays["rows"]["part_end"][row]))

    def shard_of(self, number: int) -> bytearray:
        row = int(np.searchsorted(self.arrays["rows"]["part_end"], number, "right"))
        return self.shards[self.names[self.arrays["rows"]["shard"][row]]]

    def place(self, offset: int, length: int) -> None:
        """Move the chosen part, with the checksum of what is there."""
        part, data = self.part(self.chosen), self.shard_of(self.chosen)
        part["offset"], part["length"] = offset, length
        part["crc32c"] = google_crc32c.value(bytes(data[offset : offset + length]))

    def exchange(self, name: str, field: str, one: int, other: int) -> None:
        items = self.arrays[name][field]
        items[one], items[other] = items[other], items[one]


def empty(it: Altered) -> None:
    it.part(it.chosen)["length"] = 0


def emptied(it: Altered) -> None:
    it.place(int(it.part(it.chosen)["offset"]), 0)


def cut(it: Altered) -> None:
    part = it.part(it.chosen)
    it.place(int(part["offset"]), it.dice.randrange(int(part["length"])))


def longer(it: Altered) -> None:
    part = it.part(it.chosen)
    it.place(int(part["offset"]), int(part["length"]) + it.dice.randrange(1, 20))


def shifted(it: Altered) -> None:
    part, by = it.part(it.chosen), it.dice.choice([-512, -16, -8, -1, 1, 3])
    offset = max(0, int(part["offset"]) + by)
    it.place(offset, int(part["length"]))


def keys_exchanged(it: Altered) -> None:
    ends, keys = it.arrays["rows"]["key_end"], it.arrays["keys"]
    spans = [(int(ends[n - 1]) if n else 0, int(ends[n])) for n in (it.row, it.other)]
    one, other = (keys[start:stop].copy() for start, stop in spans)
    keys[slice(*spans[0])], keys[slice(*spans[1])] = other, one


def key_changed(it: Altered) -> None:
    it.arrays["keys"][int(it.arrays["rows"]["key_end"][it.row]) - 1] ^= 1


def duplicated(it: Altered) -> None:
    rows = it.arrays["rows"]
    for field in ("shard", "label", "offset", "length"):
        rows[field][it.other] = rows[field][it.row]
    for one, other in zip(it.parts_of(it.row), it.parts_of(it.other), strict=True):
        it.arrays["parts"][other] = it.arrays["parts"][one]


def rows_exchanged(it: Altered) -> None:
    """The contents of two samples."""
    for field in ("shard", "label", "offset", "length"):
        it.exchange("rows", field, it.row, it.other)
    for one, other in zip(it.parts_of(it.row), it.parts_of(it.other), strict=True):
        for field in it.arrays["parts"].dtype.fields:
            it.exchange("parts", field, one, other)


def extension(it: Altered) -> None:
    exts = it.arrays["exts"].tolist()
    it.arrays["exts"] = np.array([b"exe" if each == b"bin" else each for each in exts])


def labelled(it: Altered) -> None:
    label = it.arrays["rows"]["label"]
    label[it.row] = 1 - label[it.row]
    exts = it.arrays["exts"].tolist()
    for number in it.parts_of(it.row):
        if exts[it.part(number)["ext"]] == b"cls":
            it.part(number)["crc32c"] = google_crc32c.value(b"%d" % label[it.row])


def checksum_changed(it: Altered) -> None:
    it.part(it.chosen)["crc32c"] ^= 1 << it.dice.randrange(32)


def sample_moved(it: Altered) -> None:
    field = it.dice.choice(["offset", "length"])
    it.arrays["rows"][field][it.row] += it.dice.choice([4, 16, 512])


def content_changed(it: Altered) -> None:
    """The shard, with its digest, but for the checksums of its parts."""
    part, data = it.part(it.chosen), it.shard_of(it.chosen)
    data[int(part["offset"]) + it.dice.randrange(int(part["length"]))] ^= 1


def frame_changed(it: Altered) -> None:
    """What is in front of a part, such as the name of a member."""
    part, data = it.part(it.chosen), it.shard_of(it.chosen)
    data[int(part["offset"]) - it.dice.choice([1, 2, 3, 512, 511])] ^= 1


KINDS: list[Callable[[Altered], None]] = [
    *(empty, emptied, cut, longer, shifted, keys_exchanged, key_changed, duplicated),
    *(rows_exchanged, extension, labelled, checksum_changed, sample_moved),
    *(content_changed, frame_changed),
]


def altered_sources(it: Altered, path: Path) -> bytes:
    """The record of what was packed, as the altered index would have it."""
    table = pq.read_table(path)
    plain, exts = table.to_pylist(), [each.decode() for each in it.arrays["exts"].tolist()]
    ends, text = it.arrays["rows"]["key_end"], it.arrays["keys"].tobytes()
    for number, row in enumerate(plain):
        row["key"] = text[int(ends[number - 1]) if number else 0 : int(ends[number])].decode()
        row["label"] = int(it.arrays["rows"]["label"][number])
        parts = [it.part(each) for each in it.parts_of(number)]
        parts = [part for part in parts if exts[part["ext"]] != "cls"]
        for entry, part in zip(row["parts"], parts, strict=True):
            entry.update(
                ext=exts[part["ext"]], length=int(part["length"]), crc32c=int(part["crc32c"])
            )
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(plain, table.schema), sink, write_page_checksum=True)
    return sink.getvalue()


def by_others(version: Version) -> bool:
    """Whether Python's tarfile has every sample as it was packed."""
    found: Packed = {}
    for path in version.shards:
        if path.suffix == ".tar":
            with tarfile.open(path) as archive:
                for member in archive:
                    key, _, ext = member.name.partition(".")
                    content = archive.extractfile(member)
                    found.setdefault(key, {})[ext] = content.read() if content else b""
    return not found or found == version.packed


@pytest.fixture(scope="module", params=["webdataset", "tfrecord", "recordio"])
def version(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Version:
    folder = tmp_path_factory.mktemp(request.param)
    packed: Packed = {}
    for number in range(SAMPLES):
        key, data = f"{'ab'[number % 2]}/{number:02}", random.Random(number).randbytes(150 + number)
        packed[key] = {"bin": data, "cls": b"%d" % (number % 2)}
    source = open_store(str(folder / "source"))
    for key, parts in packed.items():
        source.put(f"{key}.bin", parts["bin"])
    settings = run_settings(
        folder / "source",
        folder / "storage",
        folder,
        labels={"from": "folder"},
        shards={"format": request.param, "bytes": 8_000},
        validate="none",
    )
    prepare(settings)
    (root,) = (path.parent for path in folder.glob("storage/**/versions"))
    whole = Version(settings, root, packed)
    assert whole.is_intact()
    assert whole.read() == packed
    assert by_others(whole)
    return whole


@pytest.mark.parametrize("seed", range(60 if nightly() else 1))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_called_intact_reads_as_it_was_packed(version, kind, seed, tmp_path):
    before = {path: path.read_bytes() for path in version.root.rglob("*") if path.is_file()}
    for everywhere in (False, True):
        dice = random.Random(f"{kind.__name__} {seed}")
        it = Altered(version, dice)
        kind(it)
        try:
            if everywhere:
                version.replace(version.sources, altered_sources(it, version.sources))
            for path in version.shards:
                data = bytes(it.shards[path.name])
                if data != before[path]:
                    path.write_bytes(data)
                    digest = hashlib.sha256(data).digest()
                    names = it.arrays["digests"]["name"].tolist()
                    it.arrays["digests"]["sha256"][names.index(path.name.encode())] = np.void(
                        digest
                    )
            version.replace(version.rows, archived(it.arrays, tmp_path))
            if version.is_intact():
                assert version.read() == version.packed
                assert by_others(version)
        finally:
            for path, data in before.items():
                if path.read_bytes() != data:
                    path.write_bytes(data)
