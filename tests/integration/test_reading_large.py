"""Reading takes the documents, blocks of the index and ranges of shards that it needs, no more."""

import itertools
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from unittest import mock

import pytest
from pipeline_lab import Lab, write

import larder
from larder.errors import ConfigError
from larder.readers.data import Data
from larder.store import open_store
from larder.versions import index
from larder.versions.index import BLOCK_ROWS
from tests.support.memory import forget
from tests.support.runs import between
from tests.support.stores import RecordingStore

pytestmark = pytest.mark.push

ROWS = 5 * BLOCK_ROWS
GONE = (70, 71, 72)
"""Rows that are left out."""

LINE_BYTES = 8
SHARD_ROWS = 1_024
TAIL_BYTES = 256 << 10
"""The end of an index is read at once."""

BLOCK_BYTES = BLOCK_ROWS * (index.ROWS.itemsize + index.PARTS.itemsize + len("t.jsonl/000000000"))
LIVE = [row for row in range(ROWS) if row not in GONE]


@pytest.fixture(scope="module")
def version(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a version of a table of 20,480 rows, of which three were left out later."""
    write("memory://large-source", {"t.jsonl": b"".join(b'"%06d"\n' % n for n in range(ROWS))})
    shards = {"format": "records", "bytes": SHARD_ROWS * LINE_BYTES}
    fields = {"labels": None, "shards": shards, "growth": {"removals": "omit"}}
    source = {"url": "memory://large-source", "rows": {}}
    lab = Lab(source, "s3://memory-large", tmp_path_factory.mktemp("large"), fields)
    gone = [f"t.jsonl/{row:09}.json" for row in GONE]
    with between():
        lab.prepare()
        document = replace(lab, source={**source, "rows": {"exclude": gone}}).prepare()
    yield f"memory://large/larder/d@{document['version']}"
    forget("large")
    forget("large-source")


@pytest.fixture
def store(version: str) -> Iterator[RecordingStore]:
    recording = RecordingStore(open_store(version.partition("@")[0]))
    with mock.patch.object(larder.readers.access, "open_store", return_value=recording):
        yield recording


def requested(store: RecordingStore, end: str) -> list[int]:
    reads = (call for call in store.calls if call.method in ("open", "get"))
    return [call.size_bytes for call in reads if call.key.endswith(end)]


def opened(version: str) -> Data:
    return larder.open(version)


def test_opening_reads_one_document(store, version):
    data = opened(version)
    assert data.splits["train"].samples == ROWS - len(GONE)
    ((key, size_bytes),) = [(call.key, call.size_bytes) for call in store.calls]
    assert (key.rpartition("/")[2], size_bytes < 3_000) == ("version.json", True)


@pytest.mark.parametrize(
    ("start", "count", "blocks"),
    [(0, 1, 1), (68, 5, 1), (BLOCK_ROWS - len(GONE) - 2, 4, 2), (ROWS - len(GONE) - 7, 7, 1)],
)
def test_samples_take_the_index_rows_and_bytes_of_their_own(store, version, start, count, blocks):
    found = list(opened(version).samples("train", start, start + count))
    rows = LIVE[start : start + count]
    assert [(sample.key, sample.parts) for sample in found] == [
        (f"t.jsonl/{row:09}", {"json": b'"%06d"' % row}) for row in rows
    ]
    assert len(requested(store, ".json")) == 2
    ranges = requested(store, ".npz")
    assert len(ranges) <= 2 + 3 * blocks
    assert sum(ranges) <= TAIL_BYTES + blocks * BLOCK_BYTES
    assert len(requested(store, ".bin")) == blocks, "one request for each shard"
    assert max(requested(store, ".bin")) <= SHARD_ROWS * LINE_BYTES


def test_nothing_is_read_before_it_is_asked_for(store, version):
    samples = opened(version).samples("train", 10_000)
    assert requested(store, ".npz") == []
    assert next(samples).key == f"t.jsonl/{LIVE[10_000]:09}"
    before = len(store.calls)
    for row in LIVE[10_001:10_500]:
        assert next(samples).key == f"t.jsonl/{row:09}"
    assert len(store.calls) - before <= 1, "the next shard"


def test_memory_is_that_of_a_block(store, version):
    peaks = []
    for count in (BLOCK_ROWS, ROWS):
        samples = opened(version).samples("train")
        tracemalloc.start()
        for _ in itertools.islice(samples, count):
            pass
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 2 * peaks[0]


def test_samples_that_do_not_exist(version):
    data = opened(version)
    end = len(LIVE)
    assert list(data.samples("train", end)) == list(data.samples("train", 7, 7)) == []
    assert len(list(data.samples("train", end - 1, 10**12))) == 1
    for start, stop in ((-1, None), (0, -1)):
        with pytest.raises(ConfigError):
            data.samples("train", start, stop)
