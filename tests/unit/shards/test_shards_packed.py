import random
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from format_options import RAGGED, use
from image_files import saved
from PIL import Image
from required import at_push

from larder.config.shape import Transform
from larder.errors import DamageError, FatalError
from larder.shards.formats import shard_format
from larder.shards.images.check import ImageRules
from larder.shards.model import ShardResult
from larder.shards.old_shards import OldShards
from larder.store import Store
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget
from tests.support.packing import compared, left_out, places_of, planned
from tests.support.packing import pack as packed_into
from tests.support.sample_orders import Content, order_samples, with_packed
from tests.support.stores import FaultyStore, NoGets, RecordingStore, unreadable

WHOLE = 1 << 24


@pytest.fixture
def source() -> Iterator[Store]:
    yield MemoryStore("packed-source")
    forget("packed-source")


@pytest.fixture
def target() -> Iterator[Store]:
    yield MemoryStore("packed-new")
    forget("packed-new")


class NoObjects:
    """A source that must not be used."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the source is not used: {name}")


def jpeg(seed: int) -> bytes:
    pixels = random.Random(seed).randbytes(12 * 12 * 3)
    return saved(Image.frombytes("RGB", (12, 12), pixels), "JPEG")


CONTENTS = [
    *(Content(f"a/{n:02}", {"jpg": jpeg(n), "json": b"{}" * n}, n % 3) for n in range(30)),
    Content("b/own", {"bin": b"", "cls": b"own"}),
    Content("b/plain", {"txt": b"x" * 5000}, None, "validation"),
    Content("höhe/" + "long" * 60, {"é": b"\0\xff"}, 2, "validation"),
]


def pack(
    order: pa.RecordBatch,
    source: Any,
    target: Store,
    name: str,
    *,
    segment: str = "new",
    shard_bytes: int = 10**9,
    concurrency: int = 1,
    memory_bytes: int = WHOLE,
    **options: Any,
) -> list[ShardResult]:
    """All samples of an order, in shards."""
    format_ = shard_format(*use(name))
    plans = planned(order, format_, shard_bytes)
    limits = {"concurrency": concurrency, "memory_bytes": memory_bytes}
    return packed_into(
        order, target, format_, plans, source=source, folder=segment, **limits, **options
    )


def index(results: Sequence[ShardResult], segment: str) -> list[dict[str, Any]]:
    return [place for result in results for place in places_of(result, segment)]


def packed(
    order: pa.RecordBatch, source: Store, store: Store, name: str, segment: str = "old"
) -> pa.RecordBatch:
    """The same order, to be read from several shards."""
    results = pack(order, source, store, name, segment=segment, shard_bytes=20_000)
    assert 2 < len(results) < len(order) // 2
    return with_packed(order, index(results, segment))


def segment_of(shard: str) -> str:
    return shard.split("/")[0]


def old(store: Any, name: str = "webdataset", **options: Any) -> OldShards:
    return OldShards(store, {"old": use(name)}, segment_of, **options)


def pack_again(
    order: pa.RecordBatch, old_shards: OldShards, target: Store, **options: Any
) -> list[ShardResult]:
    """The samples of an order, from old shards alone, in one archive for each split."""
    return pack(order, NoObjects(), target, "webdataset", old_shards=old_shards, **options)


@pytest.mark.parametrize("memory_bytes", [WHOLE, 4_000])
def test_an_index_with_other_parts_is_damage(store, source, target, memory_bytes):
    order = order_samples(source, CONTENTS[:30])
    rows = packed(order, source, store, "webdataset").to_pylist()
    for part in rows[3]["packed"]["parts"]:
        part["ext"] = f"x{part['ext']}"
    again = pa.RecordBatch.from_pylist(rows, schema=order.schema)
    with larder_error("damage.manifest"):
        pack_again(again, old(store), target, memory_bytes=memory_bytes)


def test_neighbours_are_read_with_one_request(store, source, target):
    order = order_samples(source, CONTENTS[:30])
    again = packed(order, source, store, "webdataset")
    shards = {row["packed"]["shard"] for row in again.to_pylist()}
    recorded = RecordingStore(store)
    pack_again(again, old(recorded), target)
    assert [call.method for call in recorded.calls] == ["get"] * len(shards)
    size_bytes = sum(row["packed"]["length"] for row in again.to_pylist())
    assert 0.8 * size_bytes < sum(call.size_bytes for call in recorded.calls) <= size_bytes
    # If some samples are gone, what lies between the others is read if there is little.
    some = again.take(pa.array([0, 2]))
    recorded = RecordingStore(store)
    pack_again(some, old(recorded), target)
    assert len(recorded.calls) == 1


def test_a_long_gap_is_not_read(store, source, target):
    contents = [Content(f"{n}", {"bin": bytes([n]) * 40_000}) for n in range(9)]
    order = order_samples(source, contents)
    results = pack(order, source, store, "webdataset", segment="old")
    again = with_packed(order, index(results, "old")).take(pa.array([0, 1, 3, 8]))
    recorded = RecordingStore(store)
    pack_again(again, old(recorded), target)
    assert [call.size_bytes // 40_000 for call in recorded.calls] == [4, 1]


def test_a_large_sample_is_streamed(store, source, target):
    order = order_samples(source, [Content("big", {"bin": bytes(3 << 20)}, 3)])
    results = pack(order, source, store, "webdataset", segment="old")
    again = with_packed(order, index(results, "old"))
    streamed = pack_again(again, old(NoGets(store)), target, memory_bytes=1 << 20)
    assert compared(*streamed) == compared(*results)


def damage(store: Store, key: str, kind: str, place: int) -> None:
    data = bytearray(store.get(key))
    if kind == "missing":
        store.delete(key)
    elif kind == "cut":
        store.put(key, data[:place])
    else:
        data[place] ^= 1
        store.put(key, data)


@pytest.mark.parametrize("kind", ["flipped", "cut", "missing"])
@pytest.mark.parametrize(
    ("concurrency", "memory_bytes"), [(4, 800), *at_push((1, WHOLE), (4, WHOLE))]
)
@pytest.mark.parametrize("weaker", [(), ("old",)])
def test_a_damaged_shard_ends_the_build(
    store, source, target, kind, concurrency, memory_bytes, weaker
):
    """It is not a bad sample, even if its image cannot be decoded any more."""
    again = packed(order_samples(source, CONTENTS), source, store, "webdataset")
    row = again.slice(17, 1).to_pylist()[0]
    place, part = row["packed"], row["packed"]["parts"][0]
    key = place["shard"]
    damage(store, key, kind, part["offset"])
    with larder_error("damage.record" if kind == "flipped" else "damage.size") as caught:
        pack_again(
            again,
            old(store, weaker=weaker),
            target,
            concurrency=concurrency,
            memory_bytes=memory_bytes,
            rules=ImageRules("decode", skip=True),
        )
    assert caught.value.where.startswith(f"{store.url}{key}")
    if kind == "flipped":
        assert caught.value.where == f"{store.url}{key}: {row['key']}.{part['ext']}"
    assert not [info for page in target.list() for info in page]


def test_a_shard_that_the_store_refuses_is_no_failure_of_an_object(store, source, target):
    again = packed(order_samples(source, CONTENTS), source, store, "webdataset")
    refusing = FaultyStore(store)
    refusing.add("get", unreadable(), times=None)
    with pytest.raises(FatalError) as caught:
        pack_again(again, old(refusing), target)
    assert not isinstance(caught.value, DamageError)


BAD = [
    Content("b/1", {"jpg": b"no", "seg.png": b"no"}, 0),
    Content("b/2", {"jpg": jpeg(3)[:-100]}, 0),
]


@pytest.mark.parametrize("memory_bytes", [WHOLE, 800])
def test_images_are_checked_again_if_they_were_checked_more_weakly(
    store, source, target, memory_bytes
):
    order = order_samples(source, [*CONTENTS[:20], *BAD])
    again = packed(order, source, store, "webdataset")
    rules = ImageRules("decode", skip=True)
    options: dict[str, Any] = {"rules": rules, "memory_bytes": memory_bytes}
    (expected,) = pack(order, source, target, "webdataset", **options)
    assert len(left_out(expected)) == 2
    weaker = old(store, weaker=("old",))
    assert compared(*pack_again(again, weaker, target, **options)) == compared(expected)
    (found,) = pack_again(again, old(store), target, **options)
    assert not left_out(found)
    assert found.samples.num_rows == again.num_rows


def with_bad(order: pa.RecordBatch, messages: dict[str, str]) -> pa.RecordBatch:
    at = order.schema.get_field_index("bad")
    found = [messages.get(key) for key in order.column("key").to_pylist()]
    return order.set_column(at, order.schema.field(at), pa.array(found, pa.string()))


@pytest.mark.parametrize("name", RAGGED)
@pytest.mark.parametrize(("concurrency", "memory_bytes"), [(1, WHOLE), (4, 800)])
def test_a_sample_that_was_bad_is_left_out_without_being_read(
    source, target, name, concurrency, memory_bytes
):
    order = order_samples(source, [*CONTENTS[:20], *BAD, *CONTENTS[20:30]])
    options: dict[str, Any] = {"rules": ImageRules("decode", skip=True)}
    (expected,) = pack(order, source, target, name, **options)
    assert [failure.key for failure in left_out(expected)] == ["b/1.jpg", "b/2.jpg"]
    messages = {failure.key[:3]: failure.message for failure in left_out(expected)}
    for part in ("b/1.jpg", "b/1.seg.png", "b/2.jpg"):
        source.delete(part)
    options |= {"concurrency": concurrency, "memory_bytes": memory_bytes}
    found = pack(with_bad(order, messages), source, target, name, **options)
    assert compared(*found) == compared(expected)


def test_a_sample_that_was_bad_fails_where_bad_samples_do(source, target):
    order = order_samples(source, [*CONTENTS[:3], *BAD])
    (found,) = pack(with_bad(order, {"b/2": "not good"}), source, target, "webdataset")
    assert [(each.key, each.code, each.message) for each in found.failures] == [
        ("b/2", "sample.undecodable", "not good")
    ]
    assert not found.files


@pytest.mark.parametrize("memory_bytes", [WHOLE, 800])
def test_a_large_image_is_read_as_it_was_transformed(store, source, target, memory_bytes):
    """Its object has another length than what the shard has of it."""
    noise = saved(Image.effect_noise((60, 40), 90))
    order = order_samples(source, [Content("big", {"png": noise}, 3)])
    rules = ImageRules(transform=Transform(resize=20))
    results = pack(order, source, store, "webdataset", segment="old", rules=rules)
    again = with_packed(order, index(results, "old"))
    for weaker in ((), ("old",)):
        options = {"memory_bytes": memory_bytes, "rules": rules}
        found = pack_again(again, old(store, weaker=weaker), target, **options)
        assert compared(*found) == compared(*results)


def test_samples_of_many_shards_alternate(store, source, target):
    """Few are open at a time, and a shard may be read backwards."""
    contents = [Content(f"{n:02}", {"bin": bytes([n]) * 300}) for n in range(40)]
    order = order_samples(source, contents)
    results = pack(order, source, store, "parquet", segment="old", shard_bytes=900)
    assert len(results) > 17
    backwards = pa.array(range(39, -1, -1))
    again = with_packed(order, index(results, "old")).take(backwards)
    with old(store, "parquet") as old_shards:
        found = pack_again(again, old_shards, target)
    expected = pack(order.take(backwards), source, target, "webdataset")
    assert compared(*found) == compared(*expected)
