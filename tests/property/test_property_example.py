"""Records of tf.train.Example, against Google's protobuf."""

import uuid
from typing import Any

from example_proto import parsed, serialized
from hypothesis import example, given, settings
from hypothesis import strategies as st

from larder.config.shape import Feature, FormatOptions, parse_feature
from larder.errors import ConfigError
from larder.shards.formats import shard_format
from larder.shards.formats.tfrecord.example import (
    Skeletons,
    bytes_head,
    example_head,
    float_entry,
    int64_entry,
)
from larder.shards.model import Part, PlannedSample
from larder.store import Store
from tests.support.memory import MemoryStore, forget
from tests.support.packing import indexed, pack, planned
from tests.support.sample_orders import Content, order_samples

names = st.text(min_size=0, max_size=200) | st.sampled_from(["image/encoded", "ü" * 70])
int64s = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, 127, 128, 2**14, 2**63 - 1, -1])
floats = st.floats(width=32)
lengths = st.sampled_from([0, 1, 127, 128, 129, 16_383, 16_384, 70_000]) | st.integers(0, 500)
contents = lengths.map(bytes)


def entry(name: str, kind: str, values: list[Any]) -> bytes:
    if kind == "bytes":
        (value,) = values
        return bytes_head(name, len(value)) + value
    return int64_entry(name, values) if kind == "int64" else float_entry(name, values)


features = st.dictionaries(
    names,
    st.one_of(
        st.tuples(st.just("bytes"), st.lists(contents, min_size=1, max_size=1)),
        st.tuples(st.just("int64"), st.lists(int64s, max_size=70)),
        st.tuples(st.just("float"), st.lists(floats, max_size=70)),
    ),
    max_size=5,
).filter(
    lambda found: (
        not any(one != other and other.startswith(one) for one in found for other in found)
    )
)


@given(features)
@example({})
@example({"a": ("int64", []), "b": ("float", []), "c": ("bytes", [b""])})
def test_examples_are_those_of_protobuf(found):
    """No name begins another: Python's protobuf sorts ``ab`` before ``a``, C++'s ``a`` first."""
    in_order = sorted(found.items(), key=lambda item: item[0].encode())
    entries = b"".join(entry(name, *rest) for name, rest in in_order)
    assert example_head(len(entries)) + entries == serialized(found)


PARTS = {"jpg": b"\xff\xd8", "n": b" 1\n-7\t+3 ", "f": b"0.5 1e3\n", "txt": b"text"}


def features_of(
    options: FormatOptions, parts: dict[str, bytes], label: int | None = 3
) -> dict[str, tuple[str, list[Any]]]:
    bodies = [data for _, data in sorted(parts.items())]
    made = (Part(ext, f"a/b.{ext}", len(data), "") for ext, data in sorted(parts.items()))
    planned = PlannedSample("train", "a/b", label, tuple(made))
    skeleton = Skeletons(options).of(planned, [len(data) for data in bodies], bodies)
    pieces = [each if isinstance(each, bytes) else bodies[each] for each in skeleton.pieces]
    data = b"".join(pieces)
    assert len(data) == skeleton.size_bytes
    for body, offset in zip(bodies, skeleton.offsets, strict=True):
        assert data[offset : offset + len(body)] == body
    found = parsed(data)
    assert data == serialized(found)
    return found


def test_the_features_of_a_sample():
    assert features_of(FormatOptions(), PARTS) == {
        "image/class/label": ("int64", [3]),
        "image/encoded": ("bytes", [b"\xff\xd8"]),
        "image/filename": ("bytes", [b"a/b"]),
        "f": ("bytes", [b"0.5 1e3\n"]),
        "n": ("bytes", [b" 1\n-7\t+3 "]),
        "txt": ("bytes", [b"text"]),
    }
    assert features_of(FormatOptions(), {"seg.png": b"1"}, None) == {
        "image/filename": ("bytes", [b"a/b"]),
        "seg.png": ("bytes", [b"1"]),
    }


def test_configured_features():
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
    assert features_of(options, {**PARTS, "txt": b""}) == {
        "numbers": ("int64", [1, -7, 3]),
        "again": ("float", [1, -7, 3]),
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
