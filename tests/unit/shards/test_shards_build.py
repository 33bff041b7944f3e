"""Building shards: the same bytes however they are read, and failures by name."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from image_files import saved
from PIL import Image
from required import at_push

from larder.errors import RetryableError
from larder.progress import Progress
from larder.shards.formats import shard_format
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.formats.tfrecord.format import PlainWriter
from larder.shards.formats.webdataset import TarWriter
from larder.shards.images.check import ImageRules
from larder.shards.model import NO_ROWS, Part, PlannedSample, ShardPlan, ShardResult, read_samples
from larder.shards.reading import readahead
from larder.shards.reading.large import UnreadablePartError, stream
from larder.shards.reading.readahead import open_reads
from larder.shards.shard_build import ShardBuild, build_shard
from larder.store import Store, open_store
from larder.store.base import Readable
from tests.support.errors import larder_error
from tests.support.memory import forget
from tests.support.packing import compared, left_out
from tests.support.packing import planned as shards_of
from tests.support.sample_orders import Content, order_samples
from tests.support.stores import (
    Fail,
    FaultyStore,
    Meanwhile,
    MeanwhileStore,
    NoGets,
    RecordingStore,
    keys_of,
)

WEBDATASET = shard_format("webdataset")


def jpeg(shade: int, side: int = 32) -> bytes:
    return saved(Image.new("L", (side, side), shade), "JPEG")


IMAGES = [
    Content(f"train/cat/{number:03d}", {"jpg": jpeg(number), "json": b"{}" * number}, number % 3)
    for number in range(20)
]


@pytest.fixture
def target(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "out"))


@pytest.fixture(params=["memory", *at_push("file")])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "file":
        yield open_store(str(tmp_path / "in"))
    else:
        yield open_store("memory://shards-build")
        forget("shards-build")


def plan(store: Store, contents: list[Content]) -> tuple[ShardPlan, list[PlannedSample]]:
    """One shard of all the contents."""
    return plan_of(order_samples(store, contents))


def plan_of(batch: pa.RecordBatch) -> tuple[ShardPlan, list[PlannedSample]]:
    """One shard of the samples of an order."""
    (one,) = shards_of(batch, WEBDATASET)
    return one, list(read_samples([batch]))


def build(
    planned: tuple[ShardPlan, list[PlannedSample]],
    source: Readable,
    target: Store,
    *,
    concurrency: int = 1,
    memory_bytes: int = 1 << 20,
    format_: ShardFormat = WEBDATASET,
    progress: Progress | None = None,
    **rules: Any,
) -> ShardResult:
    with open_reads(concurrency, memory_bytes) as reads:
        more = {"progress": progress} if progress else {}
        options = ShardBuild(source, reads, rules=ImageRules(**rules), **more)
        return build_shard(planned[0], iter(planned[1]), format_, target.writer, options)


def test_a_shard_of_another_length_than_planned_is_not_committed(source, target):
    """As in a repair by an index that is wrong."""
    shard, samples = plan(source, IMAGES)
    with larder_error("run.internal"):
        build((replace(shard, bytes=shard.bytes + 1), samples), source, target)
    assert not keys_of(target)


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("memory_bytes", [800, 1 << 20])
def test_all_failures_are_reported_and_nothing_is_written(
    source, target, concurrency, memory_bytes
):
    planned = plan(source, IMAGES)
    source.delete("train/cat/003.jpg")
    source.put("train/cat/005.jpg", b"another content")
    source.put("train/cat/007.jpg", jpeg(8))
    source.delete("train/cat/007.json")
    limits: dict[str, Any] = {"concurrency": concurrency, "memory_bytes": memory_bytes}
    result = build(planned, source, target, skip=True, **limits)
    assert [(failure.key, failure.code) for failure in result.failures] == [
        ("train/cat/003.jpg", "object.missing"),
        ("train/cat/005.jpg", "object.changed"),
        ("train/cat/007.jpg", "object.changed"),
        ("train/cat/007.json", "object.missing"),
    ]
    assert (result.bytes, result.files, result.samples.num_rows) == (0, (), 0)
    assert not result.files
    assert keys_of(target) == []


def noise(kind: str, side: int) -> bytes:
    return saved(Image.effect_noise((side, side), 90), kind)


BAD = [
    Content("train/cat/005b", {"jpg": noise("JPEG", 64)[:-100]}, 0),
    Content("train/cat/006b", {"jpg": b""}, 0),
    Content("train/cat/007b", {"jpg": jpeg(7), "seg.png": b"no"}, 0),
]


@pytest.mark.parametrize("concurrency", [1, 3])
@pytest.mark.parametrize("memory_bytes", [800, 1 << 20])
def test_undecodable_images_fail_or_are_left_out(source, target, concurrency, memory_bytes):
    batch = order_samples(source, [*IMAGES[:3], *BAD, *IMAGES[3:]])
    planned = plan_of(batch)
    bad = ["train/cat/005b.jpg", "train/cat/006b.jpg", "train/cat/007b.seg.png"]
    limits: dict[str, Any] = {"concurrency": concurrency, "memory_bytes": memory_bytes}
    limits["validate"] = "decode"

    failed = build(planned, source, target, **limits)
    assert [failure.key for failure in failed.failures] == bad
    assert {failure.code for failure in failed.failures} == {"sample.undecodable"}
    assert left_out(failed) == []
    assert keys_of(target) == []

    skipped = build(planned, source, target, skip=True, **limits)
    assert [failure.key for failure in left_out(skipped)] == bad
    assert skipped.failures == ()
    good = pc.is_in(batch.column("key"), pa.array([content.key for content in IMAGES]))
    undisturbed = build(plan_of(batch.filter(good)), source, target, **limits)
    assert compared(skipped._replace(skipped=NO_ROWS)) == compared(undisturbed)


def test_a_sample_larger_than_memory_is_streamed(source, target):
    contents = [Content("big", {"bin": bytes(3 << 20), "png": noise("PNG", 1200)}, 3)]
    planned = plan(source, contents)
    options = {"validate": "decode", "memory_bytes": 1 << 20, "concurrency": 2}
    streamed = build(planned, NoGets(source), target, **options)  # type: ignore[arg-type]
    assert streamed.failures == ()
    whole = build(planned, source, target, memory_bytes=1 << 30)
    assert compared(streamed) == compared(whole)


@pytest.mark.parametrize("memory_bytes", [800, 8 * 300, 1 << 20])
@pytest.mark.parametrize("name", ["webdataset", "tfrecord"])
def test_samples_appended_together_make_the_same_shard(
    source, target, monkeypatch, name, memory_bytes
):
    """In several windows and lots, between samples that are streamed or left out."""
    monkeypatch.setattr(readahead, "_TOGETHER_SAMPLES", 25)
    contents = [
        Content(f"{at:02}", {"bin": bytes(at), "txt": b"x"} if at % 9 else {"a": b""}, at)
        for at in range(60)
    ]
    contents[40:41] = [Content("40", {"bin": bytes(500)}, 40), Content("40b", {"jpg": b"bad"}, 1)]
    batch = order_samples(source, contents)
    (shard,) = shards_of(batch, shard_format(name))
    planned = shard, list(read_samples([batch]))
    options: dict[str, Any] = {"memory_bytes": memory_bytes, "skip": True}
    options |= {"format_": shard_format(name)}
    together = build(planned, source, target, **options)
    for writer in (TarWriter, PlainWriter):
        monkeypatch.setattr(writer, "least_together", None)
    alone = build(planned, source, target, **options)
    assert (together.files, together.samples.num_rows) == (alone.files, 60)
    assert [*together.samples.read()] == [*alone.samples.read()]
    assert [failure.key for failure in left_out(together)] == ["40b.jpg"]


def test_a_streamed_object_that_changes_while_it_is_read_fails_the_shard(source, target):
    planned = plan(source, [Content("a", {"bin": bytes(3000)}, 1), Content("b", {"bin": b"b"}, 1)])

    meanwhile = Meanwhile()
    meanwhile.before("open", "a.bin", lambda: source.put("a.bin", bytes(2999)))
    result = build(planned, MeanwhileStore(source, meanwhile), target, memory_bytes=1000)
    assert not meanwhile.waiting
    assert [(failure.key, failure.code) for failure in result.failures] == [
        ("a.bin", "object.changed")
    ]
    assert keys_of(target) == []


@pytest.mark.parametrize("size_bytes", [1, 3])
def test_a_streamed_object_of_another_length_than_planned_is_refused(source, size_bytes):
    source.put("a.bin", b"ab")
    with pytest.raises(UnreadablePartError) as caught:
        list(stream(source, Part("bin", "a.bin", size_bytes, "")))
    assert (caught.value.failure.key, caught.value.failure.code) == ("a.bin", "object.changed")


def test_only_what_is_bad_is_read_twice(source, target):
    recorded = RecordingStore(source)
    contents = [*IMAGES[:9], Content("train/cat/bad", {"jpg": b"no image", "json": b""}, 0)]
    planned = plan(source, contents)
    result = build(planned, recorded, target, skip=True)
    assert [each.key for each in left_out(result)] == ["train/cat/bad.jpg"]
    objects = [part.key for sample in planned[1] for part in sample.parts]
    read = [call.key for call in recorded.calls]
    assert sorted(read) == sorted([*objects, "train/cat/bad.jpg", "train/cat/bad.json"])


@pytest.mark.push
@pytest.mark.parametrize("skip", [False, True])
def test_of_many_failures_the_first_are_kept(source, target, skip):
    contents = [Content(f"{number:04}", {"jpg": b"no image"}, 0) for number in range(1_005)]
    result = build(plan(source, contents), source, target, skip=skip)
    kept, none = (left_out(result), list(result.failures))[:: 1 if skip else -1]
    count = 1_005 if skip else 1_000  # of samples left out, a file has all
    assert [each.key for each in kept] == [f"{number:04}.jpg" for number in range(count)]
    assert (result.skipped.num_rows, result.failed) == ((1_005, 0) if skip else (0, 1_005))
    assert (none, result.files) == ([], ())


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("error", [RetryableError("store.unavailable", "503"), KeyboardInterrupt()])
def test_an_error_that_is_not_of_an_object_ends_the_build(source, target, concurrency, error):
    ending = FaultyStore(source)
    ending.add("get", Fail(error), key="train/cat/009.jpg")
    with pytest.raises(type(error)):
        build(plan(source, IMAGES), ending, target, concurrency=concurrency)
    assert keys_of(target) == []
