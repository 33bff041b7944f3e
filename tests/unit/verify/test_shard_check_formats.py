"""Flipped bits in shards of every format are put down to the samples that they concern."""

import random
import uuid
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pytest

from larder.manifest.sealed import StoredFile
from larder.segments.index_check import IndexedColumns
from larder.shards.formats import FORMATS
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.formats.recordio import MAGIC
from larder.shards.formats.webdataset import WebDataset
from larder.store import Store, open_store
from larder.verify.shard_check import inspect_shard
from larder.verify.verify_job import Finding
from tests.support.memory import MemoryStore, forget
from tests.support.packing import index_of, pack, surveyed
from tests.support.sample_orders import Content, order_samples
from tests.support.stores import FaultyStore, RecordingStore, unreadable

MOST_FLIPS = 120


class Shard(NamedTuple):
    store: Store
    format: ShardFormat
    files: Sequence[StoredFile]
    index: IndexedColumns

    @property
    def data(self) -> bytes:
        return self.store.get(self.files[0].name)

    def faults(self, data: bytes | None = None, store: Store | None = None) -> list[Finding]:
        """What is wrong with the shard, or with its first file if that is ``data``."""
        key = self.files[0].name
        if data is None:
            return inspect_shard(store or self.store, self.files, self.index, self.format)
        before = self.data
        self.store.put(key, data)
        try:
            return self.faults()
        finally:
            self.store.put(key, before)

    def concerned(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Places with a flipped bit, and the samples that are damaged."""
        data = self.data
        for at in range(0, len(data), max(1, len(data) // MOST_FLIPS)):
            bit = 1 << random.Random(at).randrange(8)
            (fault,) = self.faults(data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
            assert (fault.code, fault.path) == ("damage.digest", self.files[0].name)
            yield at, numbers(fault)

    def owners(self, at: int) -> tuple[int, ...]:
        """The sample whose bytes are at a place, in a format that stores them one by one."""
        found = [n for n, each in enumerate(self.index) if 0 <= at - each.offset < each.length]
        return tuple(found)


def numbers(finding: Finding) -> tuple[int, ...]:
    """The samples that are concerned, by the number in their keys."""
    return tuple(int(key.rpartition("/")[2]) for key in finding.samples)


def made(name: str, contents: Sequence[bytes], *, labelled: bool) -> Shard:
    store = MemoryStore(uuid.uuid4().hex)
    order = order_samples(
        store,
        [
            Content(f"a/{number}", {"bin": data}, number if labelled else None)
            for number, data in enumerate(contents)
        ],
    )
    format_ = surveyed(name, [order])
    (result,) = pack(order, store, format_, memory_bytes=1 << 20)
    index = IndexedColumns(pa.Table.from_batches(index_of(result)).combine_chunks().to_batches()[0])
    files = [StoredFile(file.name, file.bytes, file.sha256, "shard") for file in result.files]
    return Shard(store, format_, files, index)


@pytest.fixture(params=[False, True], ids=["without labels", "labelled"])
def labelled(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def small(name: str, labelled: bool) -> Iterator[Shard]:
    shard = made(name, [bytes([n]) * 21 for n in range(3)], labelled=labelled)
    yield shard
    forget(shard.store.url.removeprefix("memory://"))


@pytest.fixture(params=FORMATS)
def shard(request: pytest.FixtureRequest, labelled: bool) -> Iterator[Shard]:
    yield from small(request.param, labelled)


@pytest.fixture(params=["webdataset", "tfrecord", "records"])
def rows(request: pytest.FixtureRequest, labelled: bool) -> Iterator[Shard]:
    """A shard of a format in which every byte of a sample has only one right value."""
    yield from small(request.param, labelled)


def test_every_flipped_bit_is_found(shard):
    assert shard.faults() == []
    found = {sample for _, samples in shard.concerned() for sample in samples}
    assert found == {0, 1, 2}


def test_flipped_bits_are_put_down_to_their_sample(rows):
    """In tar archives, padding is of no sample."""
    is_tar = isinstance(rows.format, WebDataset)
    parts = [part for sample in rows.index for part in sample.parts]
    for at, samples in rows.concerned():
        head = 512 if is_tar else 0
        within = any(0 <= at - (part.offset or 0) + head < part.length + head for part in parts)
        assert samples == (rows.owners(at) if within or not is_tar else ()), at


@pytest.mark.parametrize("cut", [b"", MAGIC * 2], ids=["one part", "several parts"])
def test_an_image_record_is_all_checked_but_its_number(cut, labelled):
    contents = [bytes([n]) * 20 + cut + bytes([n]) for n in range(3)]
    shard = made("recordio", contents, labelled=labelled)
    starts = [sample.offset for sample in shard.index]
    numbers = {start + 8 + 8 + place for start in starts for place in range(8)}
    for at, samples in shard.concerned():
        assert samples == (() if at in numbers else shard.owners(at)), at
    forget(shard.store.url.removeprefix("memory://"))


def test_a_bad_sector_is_damage_of_every_format(shard, tmp_path):
    broken = FaultyStore(open_store(str(tmp_path)))
    for file in shard.files:
        broken.put(file.name, shard.store.get(file.name))
    for method in ("open", "get"):
        broken.add(method, unreadable(), key=shard.files[0].name, times=None)
    (fault,) = shard.faults(store=broken)
    assert (fault.code, numbers(fault)) == ("damage.size", (0, 1, 2))


@pytest.mark.parametrize("length", [0, 1])
def test_a_file_that_ends_early_is_not_opened_for_each_sample(shard, length):
    recording = RecordingStore(shard.store)
    key, data = shard.files[0].name, shard.data
    shard.store.put(key, data[:length])
    (fault,) = shard.faults(store=recording)
    assert numbers(fault) == (0, 1, 2)
    shard.store.delete(key)
    (fault,) = shard.faults(store=recording)
    assert numbers(fault) == (0, 1, 2)
    assert recording.count("open") + recording.count("get") <= 2 * 3
