"""Records of tf.train.Example: read back, damaged, too large for memory, and numbers in parts."""

from typing import Any

import pytest

from larder.config.shape import Feature, FormatOptions
from larder.errors import DamageError, ObjectError
from larder.samples.indexed import IndexedSample
from larder.shards.formats import shard_format
from larder.shards.formats.tfrecord.features import MOST_TEXT_BYTES, numbers
from larder.shards.model import ShardResult
from larder.store import Store
from tests.support.errors import larder_error
from tests.support.packing import UNCHECKED, compared, indexed, left_out, pack, read_back
from tests.support.sample_orders import Content, order_samples
from tests.support.stores import NoGets

COUNT = {"n": Feature("part", "int64", "count")}
NUMBERS = FormatOptions(
    {
        "image/encoded": Feature("image", "bytes"),
        "label": Feature("label", "int64"),
        **COUNT,
        "f": Feature("part", "float", "weight"),
    }
)
CONTENTS = [
    Content("a/1", {"jpg": b"1" * 900, "json": b"{}"}, 1),
    Content("a/2", {"jpg": b"2" * 300, "a.txt": b"text", "ignored": b""}, 300),
    Content("a/3", {"count": b"1 -2", "weight": b".5\n"}, None),
    Content("a/4", {"seg.png": b"4" * 700, "zip": b"5" * 20}, -1),
]


def build(
    store: Any, contents: list[Content], options: FormatOptions = NUMBERS, **more: Any
) -> ShardResult:
    format_ = shard_format("tfrecord", options)
    batch = order_samples(store, contents)
    (result,) = pack(batch, store, format_, **more)
    return result


def read(
    store: Store, samples: list[IndexedSample], options: FormatOptions = NUMBERS
) -> list[dict[str, bytes]]:
    return read_back(store, shard_format("tfrecord", options), samples)


def test_another_label_than_that_of_the_index_is_damage(store):
    samples = indexed(build(store, CONTENTS))
    with pytest.raises(DamageError):
        read(store, [samples[0]._replace(label=2)])
    for wrong in ({"length": 10}, {"length": samples[0].length - 1}, {"offset": 1}):
        with pytest.raises(DamageError):
            read(store, [samples[0]._replace(**wrong)])


def test_a_large_sample_is_not_held_in_memory(store):
    contents = [Content("big", {"jpg": bytes(3 << 20), "weight": b"1.5", "txt": b"t"}, 3)]
    streamed = build(store, contents, memory_bytes=1 << 20, source=NoGets(store))
    assert compared(streamed) == compared(build(store, contents, memory_bytes=1 << 30))


@pytest.mark.parametrize("memory_bytes", [8, 1 << 24])
def test_parts_that_are_no_numbers_fail_by_name_or_are_left_out(store, memory_bytes):
    contents = [
        Content("a", {"count": b"1"}),
        Content("b", {"count": b"one"}),
        Content("c", {"jpg": b"", "weight": b"1e39"}),
        Content("d", {"weight": b"0 " * (MOST_TEXT_BYTES // 2 + 1)}),
        Content("e", {"count": b"2"}),
    ]
    failed = build(store, contents, memory_bytes=memory_bytes)
    assert not failed.files
    bad = [(name, "sample.undecodable") for name in ("b.count", "c.weight", "d.weight")]
    assert [(failure.key, failure.code) for failure in failed.failures] == bad
    skipped = build(store, contents, memory_bytes=memory_bytes, rules=UNCHECKED._replace(skip=True))
    assert [(failure.key, failure.code) for failure in left_out(skipped)] == bad
    (rows,) = skipped.samples.read()
    assert rows.column("key").to_pylist() == ["a", "e"]
    good = build(store, [contents[0], contents[4]], memory_bytes=memory_bytes)
    assert skipped.files == good.files


@pytest.mark.parametrize(
    ("kind", "text", "values"),
    [
        ("int64", b"", []),
        ("int64", b" \n", []),
        ("int64", b"0 +1 -1\t2\r\n3", [0, 1, -1, 2, 3]),
        ("int64", b"9223372036854775807 -9223372036854775808", [2**63 - 1, -(2**63)]),
        ("int64", b"007", [7]),
        ("float", b"1 -1. .5 1e3 +2.5E-3", [1.0, -1.0, 0.5, 1000.0, 0.0025]),
        ("float", b"3.4028235e38 inf -inf 1e-60", [3.4028235e38, float("inf"), -float("inf"), 0]),
    ],
)
def test_numbers_in_texts(kind, text, values):
    assert numbers(text, kind, "x") == pytest.approx(values)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(("int64", text) for text in (b"1.0", b"1_0", b"0x1", b"--1", b"1,2", b"true", b"\xff")),
        *(("int64", text) for text in ("١".encode(), b"9223372036854775808", b"1" * 5000, b"1\0")),
        *(("float", text) for text in (b"1_0", b"1e", b".", b"1,5", b"infinity", b"0x1p3")),
        *(("float", text) for text in (b"3.5e38", b"1e400", b"-1e999")),
    ],
)
def test_what_are_no_numbers(kind, text):
    with larder_error("sample.undecodable") as caught:
        numbers(text, kind, "x")
    assert len(caught.value.message) < 100


def test_a_long_word_that_is_no_number_is_found_at_once():
    """It took hours: every digit was tried as the end of the whole part, up to a million."""
    for word in (b"9" * 10**6 + b"x", b"0." + b"9" * 10**6 + b"x", b"1e" + b"9" * 10**6 + b"x"):
        with pytest.raises(ObjectError):
            numbers(word, "float", "a.txt")


@pytest.mark.parametrize(
    ("parts", "options"),
    [
        (("jpg", "png"), FormatOptions()),
        (("f",), NUMBERS),
        (("label", "jpg"), NUMBERS),
        (("count",), FormatOptions({**COUNT, "count/text": Feature("key", "bytes")})),
    ],
)
def test_samples_that_do_not_fit_are_refused_before_anything_is_read(store, parts, options):
    order = order_samples(store, [Content("a", dict.fromkeys(parts, b"1"))])
    with larder_error("config.invalid_value", "shards.features"):
        shard_format("tfrecord", options).sample_sizes(order)
