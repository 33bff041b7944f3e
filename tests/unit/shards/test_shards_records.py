"""Records of one length, and batches as numpy arrays."""

import io
import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from required import at_push

from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError, DamageError
from larder.manifest.sealed import StoredFile
from larder.shards.formats import shard_format
from larder.shards.formats.batches import MAX_BYTES, BatchWriter
from larder.shards.formats.format_interface import Split
from larder.shards.formats.records import RecordsFormat, RecordsIndex
from larder.shards.model import ShardPlan, ShardResult
from larder.store import Store
from tests.support.packing import indexed, pack, planned, surveyed
from tests.support.sample_orders import Content, order_samples


def write(
    store: Store, contents: list[Content], target_bytes: int = 10**9, before: Layout | None = None
) -> tuple[list[ShardResult], Any]:
    """The shards, and the index of the split."""
    batch = order_samples(store, contents)
    half = len(batch) // 2
    pieces = [batch.slice(0, half), batch.slice(half)]
    layout = RecordsFormat(FormatOptions()).survey(pieces, before)
    format_ = shard_format("records", FormatOptions(layout=layout))
    shards = pack(batch, store, format_, planned(batch, format_, target_bytes))
    own = [
        (StoredFile(shard.name, shard.bytes, "0" * 64, "shard"), shard.samples.num_rows)
        for shard in shards
    ]
    return shards, json.loads(RecordsIndex(layout).content(Split("d", "train", own, "..")))


def sample(number: int, label: int | None = 0, **parts: bytes) -> Content:
    image = bytes([number]) * 12
    return Content(f"k{number}", {"img": image, "depth": b"%04d" % number, **parts}, label)


def test_record_i_is_at_i_times_its_size(store):
    (first, second), index = write(store, [sample(n, n - 2) for n in range(7)], 100)
    assert (first.name, first.bytes) == ("d-train-000000.bin", 4 * 24)
    assert index == {
        "format": "larder-records-1",
        "dataset": "d",
        "split": "train",
        "record_bytes": 24,
        "fields": [
            {"name": "depth", "offset": 0, "bytes": 4, "type": "bytes"},
            {"name": "img", "offset": 4, "bytes": 12, "type": "bytes"},
            {"name": "label", "offset": 16, "bytes": 8, "type": "int64"},
        ],
        "records": 7,
        "shards": [
            {"key": "d-train-000000.bin", "records": 4},
            {"key": "d-train-000001.bin", "records": 3},
        ],
    }
    dtype = np.dtype([("depth", "V4"), ("img", "V12"), ("label", "<i8")])
    records = np.frombuffer(store.get(second.name), dtype)
    assert records["label"].tolist() == [2, 3, 4]
    assert records[1]["depth"].tobytes() == b"0005"
    assert records[1]["img"].tobytes() == bytes([5]) * 12


@pytest.mark.parametrize(
    "odd",
    [
        sample(9, 0, img=b"short"),
        sample(9, 0, more=b""),
        Content("k9", {"img": bytes(12)}, 0),
        Content("k9", {"img": bytes(12), "deep": bytes(4)}, 0),
        sample(9, None),
    ],
)
@pytest.mark.parametrize("place", [0, 1, 4, 8])
def test_a_sample_that_is_not_like_the_others_is_refused_by_name(store, odd, place):
    contents = [sample(n) for n in range(8)]
    contents.insert(place, odd)
    with pytest.raises(ConfigError) as caught:
        write(store, contents)
    # If it is the first, the others are the odd ones.
    assert caught.value.where == f"k9.{min(odd.parts)}" or place == 0


def test_a_sample_of_a_later_segment_has_to_be_like_those_before(store):
    before = Layout({"img": 12, "depth": 5}, labelled=True)
    with pytest.raises(ConfigError):
        write(store, [sample(1)], before=before)


def test_a_record_has_bytes(store):
    with pytest.raises(ConfigError):
        write(store, [Content("a", {"x": b""})])


def test_a_part_cannot_be_called_as_the_label(store):
    with pytest.raises(ConfigError):
        write(store, [Content("a", {"label": b"1"}, 1)])
    (shard,), index = write(store, [Content("a", {"label": b"1"})])
    assert (store.get(shard.name), [f["name"] for f in index["fields"]]) == (b"1", ["label"])


CONTENTS = [
    Content("a/1", {"jpg": b"\xff\xd8\xff", "txt": b"one"}, 3),
    Content("höhe/漢字", {"é": b"\0"}, None),
    Content("a/3", {"txt": b"three", "jpg": b""}, 2**31 - 1),
]


def write_batches(store: Store, contents: list[Content], samples: int) -> list[ShardResult]:
    batch = order_samples(store, contents)
    format_ = surveyed("batches", [batch])
    return pack(batch, store, format_, planned(batch, format_, 1, samples_per_shard=samples))


def texts(batch: dict[str, np.ndarray], name: str) -> list[bytes]:  # type: ignore[type-arg]
    ends = batch[f"{name}.offsets"]
    return [batch[name][start:stop].tobytes() for start, stop in pairwise(ends)]


def test_numpy_loads_a_batch(store):
    first, second = write_batches(store, CONTENTS, 2)
    assert (first.name, second.name) == ("d-train-000000.npz", "d-train-000001.npz")
    with np.load(io.BytesIO(store.get(first.name))) as file:
        batch = dict(file)
    names = ("key", "jpg", "txt", "é")
    assert set(batch) == {*names, "label", *(f"{name}.offsets" for name in names)}
    assert [key.decode() for key in texts(batch, "key")] == ["a/1", "höhe/漢字"]
    assert texts(batch, "jpg") == [b"\xff\xd8\xff", b""]
    assert texts(batch, "é") == [b"", b"\0"]
    assert batch["label"].tolist() == [3, -1]
    assert batch["label"].dtype == np.dtype("<i8")
    with np.load(io.BytesIO(store.get(second.name))) as file:
        assert texts(dict(file), "txt") == [b"three"]


@pytest.mark.parametrize("bit", [1, *at_push(4, 8, 128)])
def test_labels_in_a_damaged_archive_are_damage_or_right(store, bit):
    (shard,) = write_batches(store, CONTENTS, 9)
    data = store.get(shard.name)
    samples = indexed(shard)
    found = 0
    for at in range(len(data)):
        store.put(shard.name, data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :])
        try:
            with shard_format("batches").open(store, shard.name) as reader:
                assert reader.read(samples[0])["cls"] == b"3"
        except DamageError:
            found += 1
    assert found > 100


def test_a_batch_that_no_archive_can_hold_is_refused():
    plan = ShardPlan("train", 0, "d-train-000000.npz", 0, 5, MAX_BYTES + 1)
    with pytest.raises(ConfigError):
        BatchWriter(None, Layout({}, labelled=False), plan)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parts", [{"key": b""}, {"label": b""}, {"a": b"", "a.offsets": b""}, {"key.offsets": b""}]
)
def test_a_part_cannot_be_called_as_another_array(store, parts):
    with pytest.raises(ConfigError):
        write_batches(store, [Content("x", parts, 1)], 1)
