import uuid

import pytest

from larder.samples.indexed import IndexedPart, IndexedSample
from larder.shards.reading import ranges
from larder.shards.reading.ranges import PartReader, RangeReader
from larder.store import open_store
from tests.support.errors import larder_error
from tests.support.stores import RecordingStore

DATA = bytes(range(200)) * 5


@pytest.fixture
def store() -> RecordingStore:
    found = RecordingStore(open_store(f"memory://{uuid.uuid4().hex}"))
    found.put("s", DATA)
    found.forget()
    return found


def opened(store: RecordingStore) -> int:
    return sum(call.method == "open" for call in store.calls)


def test_ranges_come_in_one_pass_from_the_first_of_them(store):
    with RangeReader(store, "s") as reader:
        assert opened(store) == 0
        assert reader.read_range(100, 10) == DATA[100:110]
        assert reader.read_range(110, 0) == b""
        assert reader.read_range(400, 600) == DATA[400:]
    assert opened(store) == 1


def test_large_gaps_are_skipped(store, monkeypatch):
    monkeypatch.setattr(ranges, "_SKIP_BYTES", 300)
    with RangeReader(store, "s") as reader:
        assert reader.read_range(700, 10) == DATA[700:710]
        assert reader.read_range(800, 10) == DATA[800:810]
    with RangeReader(store, "s") as reader:
        assert reader.read_range(0, 10) == DATA[:10]
        assert reader.read_range(311, 10) == DATA[311:321]
    assert opened(store) == 3


@pytest.mark.parametrize("offset", [995, 1000, 1001, 5000])
def test_an_object_that_ends_too_early_is_damage(store, offset):
    with RangeReader(store, "s") as reader, larder_error("damage.size", reader.url):
        reader.read_range(offset, 10)


def test_a_part_without_an_offset_cannot_be_read_by_range(store):
    sample = IndexedSample("k", "s", 0, 1, None, (IndexedPart("jpg", None, 10, 0),))
    with PartReader(store, "s") as reader, larder_error("damage.manifest") as caught:
        reader.read(sample)
    assert caught.value.where.endswith("/s: k.jpg")
