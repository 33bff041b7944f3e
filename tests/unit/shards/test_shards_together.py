"""Derived objects that are near each other are read with one request."""

from larder.manifest.extents import in_object, in_own
from larder.shards.model import Part, PlannedSample
from larder.shards.reading.fetch import Contents, fetch_together
from larder.store.base import Store
from larder.store.derived import DerivedObjects
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
