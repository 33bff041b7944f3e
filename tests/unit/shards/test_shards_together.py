"""Ranges of shards and derived objects: what is near is read with one request."""

import uuid

import pytest

from larder.manifest.extents import in_object, in_own
from larder.samples.indexed import IndexedPart, IndexedSample
from larder.shards.model import Part, PlannedSample
from larder.shards.reading import ranges
from larder.shards.reading.fetch import Contents, fetch_together
from larder.shards.reading.ranges import PartReader, RangeReader
from larder.store import open_store
from larder.store.base import Store
from larder.store.derived import DerivedObjects
from tests.support.errors import larder_error
from tests.support.packing import UNCHECKED
from tests.support.stores import RecordingStore

DATA = bytes(number % 251 for number in range(3_000_000))


def part(key: str, offset: int, length: int, end: str) -> Part:
    return Part(key.rpartition(".")[2], key, length, f"@{offset}+{length}{end}")


def sample(*parts: Part) -> PlannedSample:
    return PlannedSample("train", parts[0].key.partition(".")[0], None, parts)


def read(store: Store, samples: list[PlannedSample]) -> tuple[list[list[bytes]], int]:
    """The contents, and the number of requests; nothing may fail."""
    recording = RecordingStore(store)
    source = DerivedObjects(recording, lambda: recording)
    found = fetch_together(source, samples, UNCHECKED)
    assert isinstance(found, Contents)
    requests = recording.count("get") + recording.count("open")
    each = found.of_each(samples)
    return [[body.data for body in fetched.bodies] for fetched in each], requests


def test_neighbours_are_read_with_one_request(store):
    end = in_object("a.tar", store.put("a.tar", DATA).etag)
    places = [(9000, 50), (100, 20), (120, 0), (4000, 3000)]
    samples = [sample(part(f"a.tar/{at}.bin", *place, end)) for at, place in enumerate(places)]
    contents, requests = read(store, samples)
    assert contents == [[DATA[start : start + length]] for start, length in places]
    assert requests == 1


def test_what_is_far_apart_or_elsewhere_is_not(store):
    ends = [in_object(key, store.put(key, DATA).etag) for key in ("a.tar", "b.tar")]
    store.put("own.jsonl", DATA)
    plain = store.put("c.png", b"plain")
    samples = [
        sample(part("a.tar/0.bin", 0, 10, ends[0])),
        sample(part("a.tar/1.bin", 2_000_000, 10, ends[0])),
        sample(part("b.tar/2.bin", 7, 10, ends[1])),
        sample(part("x/3.json", 1, 2, in_own("own.jsonl")), Part("png", "c.png", 5, plain.etag)),
    ]
    contents, requests = read(store, samples)
    assert contents == [
        [DATA[:10]],
        [DATA[2_000_000:2_000_010]],
        [DATA[7:17]],
        [DATA[1:3], b"plain"],
    ]
    assert requests == 5


def test_every_object_has_its_own_failure(store):
    end = in_object("a.tar", store.put("a.tar", DATA).etag)
    store.put("a.tar", DATA + b"1")
    source = DerivedObjects(store, lambda: store)
    samples = [sample(part(f"a.tar/{at}.bin", at, 1, end)) for at in range(3)]
    found = fetch_together(source, samples, UNCHECKED)
    assert isinstance(found, list)
    (codes, keys) = zip(*((f.code, f.key) for each in found for f in each.failures), strict=True)
    assert codes == ("object.changed",) * 3
    assert keys == ("a.tar/0.bin", "a.tar/1.bin", "a.tar/2.bin")


BYTES = bytes(range(200)) * 5


@pytest.fixture
def noted() -> RecordingStore:
    found = RecordingStore(open_store(f"memory://{uuid.uuid4().hex}"))
    found.put("s", BYTES)
    found.forget()
    return found


def opened(noted: RecordingStore) -> int:
    return sum(call.method == "open" for call in noted.calls)


def test_ranges_come_in_one_pass_from_the_first_of_them(noted):
    with RangeReader(noted, "s") as reader:
        assert opened(noted) == 0
        assert reader.read_range(100, 10) == BYTES[100:110]
        assert reader.read_range(110, 0) == b""
        assert reader.read_range(400, 600) == BYTES[400:]
    assert opened(noted) == 1


def test_large_gaps_are_skipped(noted, monkeypatch):
    monkeypatch.setattr(ranges, "_SKIP_BYTES", 300)
    with RangeReader(noted, "s") as reader:
        assert reader.read_range(700, 10) == BYTES[700:710]
        assert reader.read_range(800, 10) == BYTES[800:810]
    with RangeReader(noted, "s") as reader:
        assert reader.read_range(0, 10) == BYTES[:10]
        assert reader.read_range(311, 10) == BYTES[311:321]
    assert opened(noted) == 3


@pytest.mark.parametrize("offset", [995, 1000, 1001, 5000])
def test_an_object_that_ends_too_early_is_damage(noted, offset):
    with RangeReader(noted, "s") as reader, larder_error("damage.size", reader.url):
        reader.read_range(offset, 10)


def test_a_part_without_an_offset_cannot_be_read_by_range(noted):
    sample = IndexedSample("k", "s", 0, 1, None, (IndexedPart("jpg", None, 10, 0),))
    with PartReader(noted, "s") as reader, larder_error("damage.manifest") as caught:
        reader.read(sample)
    assert caught.value.where.endswith("/s: k.jpg")
