import json
from typing import Any

import numpy as np
import pytest

from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError
from larder.shards.formats import shard_format
from larder.shards.formats.records import Records, RecordsIndex
from larder.shards.indexes import Split, SplitShard
from larder.shards.model import ShardResult
from larder.store import Store
from tests.support.packing import pack, planned
from tests.support.sample_orders import Content, order_samples


def write(
    store: Store, contents: list[Content], target_bytes: int = 10**9, before: Layout | None = None
) -> tuple[list[ShardResult], Any]:
    """The shards, and the index of the split."""
    batch = order_samples(store, contents)
    half = len(batch) // 2
    pieces = [batch.slice(0, half), batch.slice(half)]
    layout = Records(FormatOptions()).survey(pieces, before)
    format_ = shard_format("records", FormatOptions(layout=layout))
    shards = pack(batch, store, format_, planned(batch, format_, target_bytes))
    own = [SplitShard(shard.name, shard.bytes, shard.samples.num_rows) for shard in shards]
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
