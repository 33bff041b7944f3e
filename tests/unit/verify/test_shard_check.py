import hashlib
from types import SimpleNamespace
from typing import Any

import google_crc32c
import pyarrow as pa
import pytest

from larder.errors import ObjectError
from larder.manifest.schemas import INDEXED
from larder.manifest.sealed import StoredFile
from larder.segments.index_check import IndexedColumns
from larder.shards.formats import shard_format
from larder.verify.reading import _indexed
from larder.verify.shard_check import inspect_shard
from larder.verify.verify_job import MISSING, Finding
from larder.versions.index import Shard
from tests.support.memory import MemoryStore
from tests.support.stores import Fail, FaultyStore

DATA = bytes(range(200))


def part(ext: str, offset: int | None, length: int, data: bytes = DATA) -> dict[str, Any]:
    content = data[offset or 0 : (offset or 0) + length]
    crc32c = google_crc32c.value(content)
    return {"ext": ext, "offset": offset, "length": length, "crc32c": crc32c}


def label(number: int) -> dict[str, Any]:
    data = b"%d" % number
    return part("cls", None, len(data)) | {"crc32c": google_crc32c.value(data)}


def index(*samples: tuple[int, int, int | None, list[dict[str, Any]]]) -> IndexedColumns:
    """Of offset, length, label and parts of each sample."""
    rows = [
        {
            "key": f"k{number}",
            "shard": "x.tar",
            "offset": offset,
            "length": length,
            "label": class_,
            "parts": parts,
        }
        for number, (offset, length, class_, parts) in enumerate(samples)
    ]
    return IndexedColumns(pa.RecordBatch.from_pylist(rows, schema=INDEXED))


def test_an_index_of_fewer_samples_than_a_shard_has_is_told():
    """However many a document says that there are, it takes no memory."""
    shard = Shard("s", "train", 0, 2**40, 0, ())
    _, found, problem = _indexed(SimpleNamespace(count=3), shard)
    assert (found, "the index has 3 samples" in problem) == (None, True)


def test_places_in_order_are_possible():
    one = index(
        (0, 50, None, [part("a", 10, 10), part("b", 20, 30)]), (50, 40, None, [part("a", 60, 0)])
    )
    assert one.places_problem(90) == one.places_problem(60) == ""
    assert [span.sample for span in one.spans()] == [0, 0]
    assert one.named([1, 0]) == ("k1", "k0")
    assert [sample.key for sample in one] == ["k0", "k1"]


def test_rows_of_columns_are_possible():
    """Offsets of parts in the file are those of columns, in no order of rows."""
    one = index(
        (0, 1, 0, [part("a", 100, 10), part("b", 0, 10)]),
        (1, 1, 0, [part("a", 110, 10), part("b", 10, 10), label(0)]),
    )
    assert one.places_problem(120) == ""
    assert [span.start for span in one.spans()] == [0, 10, 100, 110]


@pytest.mark.parametrize(
    ("samples", "problem"),
    [
        ([(0, 50, None, []), (40, 50, None, [])], "the index of k1 begins at 40, before 50"),
        ([(0, -1, None, [])], "the index of k0 begins at 0"),
        ([(10, 20, None, [part("a", 5, 10)])], "k0.a is outside of its sample"),
        ([(0, 20, None, [part("a", 15, 10)])], "k0.a is outside of its sample"),
        ([(0, 40, None, [part("a", 0, 20), part("b", 10, 10)])], "k0.b overlaps another part"),
        ([(0, 40, None, [part("a", 20, 10) | {"length": -5}])], "k0.a overlaps another part"),
        ([(0, 500, None, [part("a", 190, 20)])], "k0.a is beyond the end of the shard"),
    ],
)
def test_impossible_places_are_named(samples, problem):
    assert problem in index(*samples).places_problem(200)


def test_labels_are_those_of_their_parts():
    right = index((0, 1, 0, [label(0)]), (1, 1, 12, [label(12)]), (2, 1, None, []))
    assert right.label_problems(13) == ("", [])
    assert right.label_problems(12) == ("k1 has the label 12 of 12 classes", [1])
    wrong = index(
        (0, 1, 1, [label(2)]), (1, 1, 1, []), (2, 1, 1, [label(1), label(1)]), (3, 1, 1, [label(1)])
    )
    assert wrong.label_problems(3) == ("the part cls of k0 is not its label, 1", [0, 1, 2])
    own = index((0, 50, None, [part("cls", 0, 10)]))  # a part of a dataset without labels
    assert own.label_problems(0) == ("", [])


FILE = StoredFile("x.tar", len(DATA), hashlib.sha256(DATA).hexdigest(), "shard")
WHOLE = index((0, 100, None, [part("a", 10, 90)]), (100, 100, None, [part("a", 110, 80)]))


def inspected(data: bytes | None, samples: IndexedColumns | None = WHOLE) -> list[Finding]:
    store = MemoryStore("inspected")
    store.delete("x.tar")
    if data is not None:
        store.put("x.tar", data)
    return inspect_shard(store, [FILE], samples, None)


def test_what_was_published_has_no_faults():
    assert inspected(DATA) == inspected(DATA, None) == []


def test_every_length_is_found():
    for length in range(len(DATA)):
        (fault,) = inspected(DATA[:length])
        wanted = () if length >= 190 else ("k1",) if length >= 100 else ("k0", "k1")
        assert (fault.code, fault.samples) == ("damage.size", wanted)
    (fault,) = inspected(None)
    assert (fault.message, fault.samples) == (MISSING, ("k0", "k1"))


def test_a_right_file_with_another_index_is_found():
    other = index((0, 100, None, [part("a", 10, 90) | {"crc32c": 1}]))
    (fault,) = inspected(DATA, other)
    assert (fault.code, fault.samples) == ("damage.record", ("k0",))
    (fault,) = inspected(DATA, index((0, 5, None, [part("a", 10, 90)])))
    assert fault.code == "damage.manifest"


def test_what_a_store_refuses_is_raised():
    store = FaultyStore(MemoryStore("inspected"))
    store.put("x.tar", DATA)
    store.add("open", Fail(ObjectError("object.unreadable", "403")))
    with pytest.raises(ObjectError, match="403"):
        inspect_shard(store, [FILE], WHOLE, shard_format("webdataset"))
