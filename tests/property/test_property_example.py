"""Records of tf.train.Example, against Google's protobuf.

Of names that begin each other: Python's protobuf sorts ``ab`` before ``a``, C++'s ``a`` first.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from example_proto import parsed, serialized
from hypothesis import example, given, settings
from hypothesis import strategies as st

from larder.config.shape import Feature, FormatOptions, parse_feature
from larder.errors import ConfigError
from larder.shards.formats import shard_format
from larder.store import Store
from tests.support.memory import MemoryStore, forget
from tests.support.packing import indexed, pack, planned
from tests.support.sample_orders import Content, order_samples

lengths = st.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384, 70_000]) | st.integers(0, 500)
contents = lengths.map(bytes)


@pytest.fixture
def store() -> Iterator[Store]:
    name = uuid.uuid4().hex
    yield MemoryStore(name)
    forget(name)


MOST = 2**63 - 1
PARTS = {"jpg": b"\xff\xd8", "n": b" 1\n-7\t+128 %d" % MOST, "f": b"0.5 1e3\n", "txt": b"text"}


def features_of(
    store: Store, options: FormatOptions, parts: dict[str, bytes], label: int | None = 3
) -> dict[str, tuple[str, list[Any]]]:
    """The features of the record of a sample, which protobuf would serialize alike."""
    format_ = shard_format("tfrecord", options)
    (result,) = pack(order_samples(store, [Content("a/b", parts, label)]), store, format_)
    data = store.get(result.name)[12:-4]
    found = parsed(data)
    assert data == serialized(found)
    return found


def test_the_features_of_a_sample(store):
    assert features_of(store, FormatOptions(), PARTS) == {
        "image/class/label": ("int64", [3]),
        "image/encoded": ("bytes", [b"\xff\xd8"]),
        "image/filename": ("bytes", [b"a/b"]),
        "f": ("bytes", [b"0.5 1e3\n"]),
        "n": ("bytes", [PARTS["n"]]),
        "txt": ("bytes", [b"text"]),
    }
    assert features_of(store, FormatOptions(), {"seg.png": b"1"}, None) == {
        "image/filename": ("bytes", [b"a/b"]),
        "seg.png": ("bytes", [b"1"]),
    }


def test_configured_features(store):
    options = FormatOptions(
        {
            "numbers": Feature("part", "int64", "n"),
            "again": Feature("part", "float", "n"),
            "f": Feature("part", "float", "txt"),
            "same": Feature("part", "bytes", "f"),
            "decimals": Feature("part", "float", "f"),
            "label": Feature("label", "float"),
            "digits": Feature("label", "bytes"),
            "class": Feature("class", "bytes"),
            "missing": Feature("part", "int64", "missing"),
            "picture": Feature("image", "bytes"),
        },
        ("cat", "dog", "cow", "ü"),
    )
    assert features_of(store, options, {**PARTS, "txt": b""}) == {
        "numbers": ("int64", [1, -7, 128, MOST]),
        "again": ("float", [1, -7, 128, float(2**63)]),
        "n/text": ("bytes", [PARTS["n"]]),
        "f": ("float", []),
        "txt/text": ("bytes", [b""]),
        "same": ("bytes", [PARTS["f"]]),
        "decimals": ("float", [0.5, 1000]),
        "label": ("float", [3]),
        "digits": ("bytes", [b"3"]),
        "class": ("bytes", ["ü".encode()]),
        "picture": ("bytes", [b"\xff\xd8"]),
    }


EXTS = st.sampled_from(["jpg", "txt", "a.b", "n", "é", "zip", "seg.png", "cls"])
SOURCES = ["image", "label", "label float", "label bytes", "class", "key", ".txt", ".n", ".a.b"]
NUMBERS = [".n int64", ".n float", ".txt float"]
given_features = st.none() | st.dictionaries(
    st.sampled_from(["a", "image/encoded", "zz", "m/n"]),
    st.sampled_from([*SOURCES, *NUMBERS]),
    max_size=4,
)
contents_of_samples = st.lists(
    st.builds(
        Content,
        st.text("ab/é", min_size=1, max_size=8).map(lambda text: text.strip("/") + "k"),
        st.dictionaries(EXTS, st.one_of(contents, st.just(b" 7 -1 ")), min_size=1, max_size=4),
        st.none() | st.integers(0, 300),
        st.just("train"),
    ),
    min_size=1,
    max_size=6,
    unique_by=lambda content: content.key,
)


def with_numbers(content: Content, exts: set[str]) -> Content:
    """With numbers in some parts; no part has the name of the label if there is one."""
    parts = {ext: b"7 -8" if ext in exts else data for ext, data in content.parts.items()}
    return content._replace(parts=parts, label=None if "cls" in parts else content.label)


@settings(max_examples=2 * settings.default.max_examples)
@given(contents_of_samples, given_features, st.sampled_from([1, 1 << 24]))
@example([Content("k", {"n": b"x"}, None, "train")], {"a": ".n", "zz": ".n"}, 1)
def test_planned_written_and_read_back(found, features, memory_bytes):
    texts = features and {name: parse_feature(text) for name, text in features.items()}
    classes = tuple(f"c{n}" for n in range(301))
    format_ = shard_format("tfrecord", FormatOptions(texts, classes))
    of_numbers = {text.split()[0][1:] for text in (features or {}).values() if text in NUMBERS}
    own = [with_numbers(content, of_numbers) for content in found]
    name = uuid.uuid4().hex
    store: Store = MemoryStore(name)
    batch = order_samples(store, own)
    try:
        (plan,) = planned(batch, format_)
    except ConfigError:  # two images, or two features of one name
        return
    (result,) = pack(batch, store, format_, [plan], memory_bytes=memory_bytes)
    assert not result.failures
    assert format_.sizes_known == (not of_numbers)
    assert result.bytes == plan.bytes or of_numbers
    data = store.get(result.name)
    rows = indexed(result)
    with format_.open(store, result.name) as reader:
        for row, content in zip(rows, own, strict=True):
            label = {} if content.label is None else {"cls": b"%d" % content.label}
            assert reader.read(row) == {**content.parts, **label}
            example = parsed(data[row.offset + 12 : row.offset + row.length - 4])
            values = [value for kind, each in example.values() if kind == "bytes" for value in each]
            assert all(part in values for part in content.parts.values())
    forget(name)
