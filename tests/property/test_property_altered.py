"""Versions that were altered consistently are not intact, or every sample reads as it was packed.

Every digest that a document has of an altered file is made right, as is every checksum inside it.
"""

import hashlib
import io
import json
import random
import tarfile
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
from larder.jobs.step_runner import InlineRunner
from larder.manifest.sealed import seal
from larder.pipeline.preparing import prepare
from larder.progress import StageTimes
from larder.readers.data import Data
from larder.store import open_store
from larder.verify.verify_job import DamagedError
from larder.verify.verifying import VerifySettings, verify
from larder.versions.arrays import array_header, read_array, read_directory, write_archive
from larder.versions.index import BLOCKS, NONE, checksum
from tests.support.runs import run_settings

SAMPLES = 12
Packed = dict[str, dict[str, bytes]]


@dataclass
class Version:
    settings: Any
    root: Path
    packed: Packed

    def one(self, pattern: str) -> Path:
        (path,) = self.root.glob(pattern)
        return path

    @property
    def shards(self) -> list[Path]:
        return sorted(self.root.glob("segments/*/shards/train/*"))

    def replace(self, path: Path, data: bytes) -> None:
        """Replace a file, and correct the documents that name it."""
        path.write_bytes(data)
        facts = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for document in self.root.glob("*/*/*.json"):
            plain = json.loads(document.read_bytes())
            if _named(plain, str(path.relative_to(self.root)), facts):
                plain.pop("self_sha256")
                document.write_bytes(seal(plain))

    def is_intact(self) -> bool:
        try:
            verify(VerifySettings(self.settings), InlineRunner(1, StageTimes()))
        except DamagedError:
            return False
        return True

    def read(self) -> Packed:
        data: Data = larder.open(f"{self.root}@latest")
        return {sample.key: dict(sample.parts) for sample in data.samples("train")}


def _named(plain: Any, path: str, facts: dict[str, Any]) -> bool:
    """Correct the facts of a file, wherever a document names it; false if it does not."""
    if isinstance(plain, list):
        return any(_named(each, path, facts) for each in plain)
    if not isinstance(plain, dict):
        return False
    mine = plain.get("path") == path
    plain.update(facts if mine else {})
    return any([mine, *(_named(each, path, facts) for each in plain.values())])


def archived(arrays: dict[str, np.ndarray], folder: Path) -> bytes:
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
    """The arrays of an index and the bytes of its shards, with a random row and part of it."""

    def __init__(self, version: Version, dice: random.Random) -> None:
        data = version.one("segments/*/index/rows-*.npz").read_bytes()
        self.arrays = {
            name: read_array(data[each.offset : each.offset + each.bytes]).copy()
            for name, each in read_directory(data, len(data)).items()
        }
        self.dice = dice
        self.rows, self.parts = self.arrays["rows"], self.arrays["parts"]
        self.shards = {path.name: bytearray(path.read_bytes()) for path in version.shards}
        self.row = dice.randrange(len(self.rows))
        self.other = (self.row + dice.randrange(1, len(self.rows))) % len(self.rows)
        own = [n for n in self.parts_of(self.row) if self.parts[n]["offset"] != NONE]
        self.part = self.parts[dice.choice(own)]
        name = self.arrays["names"][self.rows["shard"][self.row]]
        self.shard = self.shards[name.decode()]
        self.offset, self.length = int(self.part["offset"]), int(self.part["length"])

    def span(self, row: int, ends: str) -> range:
        """What a row has of the parts or of the bytes of keys."""
        return range(int(self.rows[ends][row - 1]) if row else 0, int(self.rows[ends][row]))

    def parts_of(self, row: int) -> range:
        return self.span(row, "part_end")

    def place(self, offset: int, length: int) -> None:
        """Move the part, with the checksum of what is there."""
        self.part["offset"], self.part["length"] = offset, length
        self.part["crc32c"] = google_crc32c.value(bytes(self.shard[offset : offset + length]))

    def contents(self, row: int) -> tuple[Any, Any]:
        own = self.rows[["shard", "label", "offset", "length"]][row].copy()
        return own, self.parts[list(self.parts_of(row))].copy()

    def put(self, row: int, contents: tuple[Any, Any]) -> None:
        for name in contents[0].dtype.names:
            self.rows[name][row] = contents[0][name]
        self.parts[list(self.parts_of(row))] = contents[1]


def keys_exchanged(it: Altered) -> None:
    keys = it.arrays["keys"]
    one, other = (list(it.span(row, "key_end")) for row in (it.row, it.other))
    keys[one], keys[other] = keys[other].copy(), keys[one].copy()


def key_changed(it: Altered) -> None:
    it.arrays["keys"][it.span(it.row, "key_end")[-1]] ^= 1


def rows_exchanged(it: Altered) -> None:
    one, other = it.contents(it.row), it.contents(it.other)
    it.put(it.row, other)
    it.put(it.other, one)


def extension(it: Altered) -> None:
    exts = it.arrays["exts"].tolist()
    it.arrays["exts"] = np.array([b"exe" if each == b"bin" else each for each in exts])


def labelled(it: Altered) -> None:
    label = 1 - it.rows["label"][it.row]
    it.rows["label"][it.row] = label
    for number in it.parts_of(it.row):
        if it.arrays["exts"][it.parts[number]["ext"]] == b"cls":
            it.parts[number]["crc32c"] = google_crc32c.value(b"%d" % label)


def checksum_changed(it: Altered) -> None:
    it.part["crc32c"] ^= 1 << it.dice.randrange(32)


def sample_moved(it: Altered) -> None:
    it.rows[it.dice.choice(["offset", "length"])][it.row] += it.dice.choice([4, 16, 512])


def content_changed(it: Altered) -> None:
    """The shard, with its digest, but for the checksums of its parts."""
    it.shard[it.offset + it.dice.randrange(it.length)] ^= 1


def frame_changed(it: Altered) -> None:
    """What is in front of a part, such as the name of a member."""
    it.shard[it.offset - it.dice.choice([1, 2, 3, 512, 511])] ^= 1


KINDS: dict[str, Callable[[Altered], None]] = {
    "empty": lambda it: it.part.__setitem__("length", 0),
    "emptied": lambda it: it.place(it.offset, 0),
    "cut": lambda it: it.place(it.offset, it.dice.randrange(it.length)),
    "longer": lambda it: it.place(it.offset, it.length + it.dice.randrange(1, 20)),
    "shifted": lambda it: it.place(
        max(0, it.offset + it.dice.choice([-512, -16, -8, -1, 1, 3])), it.length
    ),
    "duplicated": lambda it: it.put(it.other, it.contents(it.row)),
    "of another shard": lambda it: it.rows["shard"].__setitem__(
        it.row, (it.rows["shard"][it.row] + 1) % len(it.shards)
    ),
} | {
    each.__name__: each
    for each in (
        *(keys_exchanged, key_changed, rows_exchanged, extension, labelled),
        *(checksum_changed, sample_moved, content_changed, frame_changed),
    )
}


def altered_sources(it: Altered, path: Path) -> bytes:
    """The record of what was packed, as the altered index would have it."""
    table = pq.read_table(path)
    plain, exts = table.to_pylist(), [each.decode() for each in it.arrays["exts"].tolist()]
    for number, row in enumerate(plain):
        key = it.arrays["keys"][list(it.span(number, "key_end"))]
        row["key"], row["label"] = key.tobytes().decode(), int(it.rows["label"][number])
        parts = [it.parts[each] for each in it.parts_of(number)]
        parts = [part for part in parts if exts[part["ext"]] != "cls"]
        for entry, part in zip(row["parts"], parts, strict=True):
            entry.update({name: int(part[name]) for name in ("length", "crc32c")})
            entry["ext"] = exts[part["ext"]]
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
    sources = version.one("segments/*/index/sources-*.parquet")
    for everywhere in (False, True):
        it = Altered(version, random.Random(f"{kind} {seed}"))
        KINDS[kind](it)
        digests = it.arrays["digests"]
        try:
            if everywhere:
                version.replace(sources, altered_sources(it, sources))
            for path in version.shards:
                data = bytes(it.shards[path.name])
                path.write_bytes(data)
                at = digests["name"].tolist().index(path.name.encode())
                digests["sha256"][at] = np.void(hashlib.sha256(data).digest())
            version.replace(
                version.one("segments/*/index/rows-*.npz"), archived(it.arrays, tmp_path)
            )
            if version.is_intact():
                assert version.read() == version.packed
                assert by_others(version)
        finally:
            for path, data in before.items():
                path.write_bytes(data)
