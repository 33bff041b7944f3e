"""Image records of RecordIO, against files that Apache MXNet 1.9.1 wrote and read.

tests/golden/recordio was made with Python 3.8, mxnet 1.9.1 and numpy below 1.24: for each content
of mxnet.json, the n-th, ``MXIndexedRecordIO.write_idx(1000 + n, pack(IRHeader(0, 7 * n, 1000 + n,
0), content))``; then ``read_idx`` and ``unpack`` returned the same, from the last to the first.
"""

import json
import random
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.config.shape import FormatOptions
from larder.errors import DamageError
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.indexed import IndexedSample
from larder.shards.formats import shard_format
from larder.shards.formats.recordio import MAGIC, cuts, part_head, parts_of, record_data
from larder.shards.model import ShardResult
from larder.store import Store, open_store
from tests.support.errors import larder_error
from tests.support.packing import indexed, pack, planned, read_back
from tests.support.sample_orders import Content, order_samples

GOLDEN = Path(__file__).parents[2] / "golden" / "recordio"
DATA = [bytes.fromhex(each) for each in json.loads((GOLDEN / "mxnet.json").read_text())]
CONTENTS = [Content(f"a/{n:02}", {"png": data}, 7 * n) for n, data in enumerate(DATA)]


def build(
    store: Store,
    contents: list[Content],
    *,
    first_record: int = 1_000,
    memory_bytes: int = 1 << 24,
    first_row: int = 0,
) -> ShardResult:
    format_ = shard_format("recordio", FormatOptions(first_record=first_record))
    batch = order_samples(store, contents)
    (plan,) = planned(batch, format_)
    plans = [replace(plan, first_row=first_row)]
    (result,) = pack(batch, store, format_, plans, memory_bytes=memory_bytes)
    return result


def read(store: Store, samples: list[IndexedSample]) -> list[dict[str, bytes]]:
    return read_back(store, shard_format("recordio"), samples)


@pytest.mark.parametrize("memory_bytes", [8, 1 << 24])  # streamed, and read ahead
def test_the_files_are_those_that_mxnet_writes(store, memory_bytes):
    result = build(store, CONTENTS, memory_bytes=memory_bytes)
    assert [file.name for file in result.files] == [
        f"d-train-000000.{ext}" for ext in ("rec", "idx", "lst")
    ]
    assert store.get("d-train-000000.rec") == (GOLDEN / "mxnet.rec").read_bytes()
    assert store.get("d-train-000000.idx") == (GOLDEN / "mxnet.idx").read_bytes()
    lines = [f"{1_000 + n}\t{7 * n}\ta/{n:02}.png\n" for n in range(len(DATA))]
    assert store.get("d-train-000000.lst") == "".join(lines).encode()


def test_numbers_go_on_from_shard_to_shard_and_may_be_the_magic_number(store):
    number = int.from_bytes(MAGIC, "little")
    result = build(store, CONTENTS[:2], first_record=number - 5, first_row=5)
    assert store.get("d-train-000000.idx").startswith(b"%d\t0\n%d\t" % (number, number + 1))
    samples = indexed(result)
    assert samples[0].parts[1].offset is None  # its header is cut
    assert [each["png"] for each in read(store, samples)] == DATA[:2]


def test_a_sample_without_a_label_has_minus_one(store):
    result = build(store, [Content("a", {"png": b"1234"})])
    assert store.get("d-train-000000.lst") == b"1000\t-1\ta.png\n"
    record = store.get(result.name)
    assert record[8:16] == bytes(4) + b"\x00\x00\x80\xbf"
    assert read(store, indexed(result)) == [{"png": b"1234"}]


def row(*parts: tuple[str, int], label: int | None = None) -> pa.RecordBatch:
    """A sample with parts of any length."""
    entries = [
        {"ext": ext, "key": f"a.{ext}", "size_bytes": size, "etag": ""} for ext, size in parts
    ]
    entry = {"split": "train", "key": "a", "label": label, "parts": entries}
    return pa.RecordBatch.from_pylist([entry], schema=SAMPLE_ORDER)


@pytest.mark.parametrize(
    "rows",
    [
        row(("jpg", 1), ("json", 1)),
        row(("jpg", 2**29 - 24)),
        row(("jpg", 1), label=2**24 + 1),  # no float32
        row(("jpg", 1), label=-(2**31)),
    ],
)
def test_samples_that_are_not_one_record_are_refused(rows):
    with larder_error("config.invalid_value", "shards.format"):
        shard_format("recordio").sample_sizes(rows)


def test_another_label_in_the_record_is_damage(store):
    samples = indexed(build(store, CONTENTS))
    changed = [sample._replace(label=1, parts=sample.parts) for sample in samples]
    with pytest.raises(DamageError):
        read(store, changed)


@pytest.mark.parametrize("every", [0, 1 << 20], ids=["one part", "several parts"])
def test_a_streamed_sample_is_held_once(tmp_path, every):
    data = bytearray(random.Random(1).randbytes(16 << 20))
    for at in range(every, len(data), every) if every else ():
        data[at : at + len(MAGIC)] = MAGIC
    folder, content = open_store(str(tmp_path)), Content("a", {"bin": bytes(data)})

    def most(do: Callable[[], Any]) -> tuple[Any, float]:
        tracemalloc.start()
        try:
            return do(), tracemalloc.get_traced_memory()[1] / len(data)
        finally:
            tracemalloc.stop()

    result, written = most(lambda: build(folder, [content], memory_bytes=1 << 20))
    assert written < 1.5
    samples = indexed(result)
    assert (samples[0].parts[0].offset is None) == bool(every)
    (found,), returned = most(lambda: read(folder, samples))
    assert found == content.parts
    assert returned < 2.5


pieces = st.lists(st.one_of(st.just(MAGIC), st.binary(max_size=9)), max_size=9).map(b"".join)


@given(pieces)
@example(b"")
@example(MAGIC * 3)
@example(b"1" + MAGIC * 2)
def test_any_data_becomes_a_record_that_has_the_magic_number_only_where_parts_begin(data):
    record, heads = b"", []
    for start, stop in parts_of(len(data), cuts(data)):
        heads.append(len(record))
        record += part_head(start, stop, len(data)) + data[start:stop]
        record += bytes(-len(record) % 4)
    assert b"".join(record_data(record)) == data
    found = [at for at in range(0, len(record), 4) if record[at : at + 4] == MAGIC]
    assert found == heads
    for wrong in (record[:-1], record[4:], record + b"\0" * 4, record + record, b""):
        with pytest.raises(ValueError, match=r"\w"):
            list(record_data(wrong))


def test_a_large_part_is_cut_at_the_same_places_from_a_file(store):
    """It is searched a mebibyte at a time."""
    data = bytearray(3 << 20)
    for at in (0, 4, (1 << 20) - 8, (1 << 20) - 2, 1 << 20, (2 << 20) - 4, (3 << 20) - 4):
        data[at : at + 4] = MAGIC
    contents = [Content("a", {"bin": bytes(data)}), Content("b", {"bin": bytes(3 << 20)})]
    results = [build(store, contents, memory_bytes=each) for each in (8, 1 << 30)]
    assert len({result.files[0].sha256 for result in results}) == 1
    first, second = read(store, indexed(results[0]))
    assert (first["bin"], second["bin"]) == (data, bytes(3 << 20))
    places = [sample.parts[0].offset for sample in indexed(results[0])]
    assert [place is None for place in places] == [True, False]
