import io
from itertools import pairwise

import numpy as np
import pytest
from required import at_push

from larder.config.shape import Layout
from larder.errors import ConfigError, DamageError
from larder.shards.formats import shard_format
from larder.shards.formats.batches import MAX_BYTES, BatchWriter
from larder.shards.model import ShardPlan, ShardResult
from larder.store import Store
from tests.support.packing import indexed, pack, planned, surveyed
from tests.support.sample_orders import Content, order_samples

CONTENTS = [
    Content("a/1", {"jpg": b"\xff\xd8\xff", "txt": b"one"}, 3),
    Content("höhe/漢字", {"é": b"\0"}, None),
    Content("a/3", {"txt": b"three", "jpg": b""}, 2**31 - 1),
]


def write(store: Store, contents: list[Content], samples: int) -> list[ShardResult]:
    batch = order_samples(store, contents)
    format_ = surveyed("batches", [batch])
    return pack(batch, store, format_, planned(batch, format_, 1, samples_per_shard=samples))


def texts(batch: dict[str, np.ndarray], name: str) -> list[bytes]:  # type: ignore[type-arg]
    ends = batch[f"{name}.offsets"]
    return [batch[name][start:stop].tobytes() for start, stop in pairwise(ends)]


def test_numpy_loads_a_batch(store):
    first, second = write(store, CONTENTS, 2)
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
    (shard,) = write(store, CONTENTS, 9)
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
        write(store, [Content("x", parts, 1)], 1)
