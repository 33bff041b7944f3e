"""The contract of shard formats; every format in the registry is tested here."""

import re
import sys
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from larder.config.patterns import expand_braces
from larder.config.shape import FormatOptions
from larder.errors import ConfigError, DamageError
from larder.samples.indexed import IndexedSample
from larder.shards.formats import FORMATS, shard_format
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.model import ROWS, ShardResult
from larder.shards.packing import brace_patterns
from larder.store import Store, open_store
from larder.store.base import Reader
from tests.support.memory import forget
from tests.support.packing import compared, expected, indexed, pack, planned, read_back
from tests.support.sample_orders import Content, order_samples

Parts = dict[str, bytes]

CONTENTS = [
    *(Content(f"a/{n:02}", {"bin": bytes([n]) * (200 * n), "txt": b"%d" % n}, n) for n in range(9)),
    Content("b/empty", {"bin": b""}, 0),
    Content("b/nothing", {"bin": b""}),
    Content("b/many", {"bin": b"1", "seg.png": b"22", "json": b"{}"}, -(2**31)),
    Content("höhe/漢字 " + "long" * 60, {"é": b"\0\xff\xce\xd7\x23\x0a"}, 2**31 - 1),
    Content("c/unlabelled", {"bin": b"no label", "cls": b"own"}),
    Content("d", {"bin": b"last" * 1000}, 7),
]


ALONE = [
    Content(content.key, {"bin": next(iter(content.parts.values()))}, content.label)
    for content in CONTENTS
    if content.label is None or abs(content.label) < 2**24
] + [Content("b/many", {"bin": b"\x0a\x23\xd7\xce" * 9}, -(2**24))]
"""For formats whose samples have to have one part."""

EQUAL = [
    Content(key, {"bin": bytes([n]) * 150, "json": b"{}", "seg.png": b"%02d" % n}, label)
    for n, (key, label) in enumerate(
        {**{f"a/{n:02}": n for n in range(9)}, "b/many": -(2**31), "höhe/漢字 ": 2**31 - 1}.items()
    )
]
"""For formats whose samples have to have equal parts."""


@pytest.fixture
def store() -> Iterator[Store]:
    name = uuid.uuid4().hex
    yield open_store(f"memory://{name}")
    forget(name)


@pytest.fixture(params=FORMATS)
def format_(
    request: pytest.FixtureRequest, store: Store, monkeypatch: pytest.MonkeyPatch
) -> ShardFormat:
    format_ = shard_format(request.param)
    if not format_.surveys:
        try:
            format_.sample_sizes(order_samples(store, CONTENTS))
        except ConfigError:
            monkeypatch.setattr(sys.modules[__name__], "CONTENTS", ALONE)
        return format_
    try:
        layout = format_.survey([order_samples(store, CONTENTS)], None)
    except ConfigError:
        monkeypatch.setattr(sys.modules[__name__], "CONTENTS", EQUAL)
        layout = format_.survey([order_samples(store, EQUAL)], None)
    return shard_format(request.param, FormatOptions(layout=layout))


def build(
    store: Store, format_: ShardFormat, contents: list[Content] | None = None, **options: Any
) -> ShardResult:
    order = order_samples(store, CONTENTS if contents is None else contents)
    (result,) = pack(order, store, format_, **options)
    return result


class GetAndOpen:
    """All that a format may use of a store."""

    def __init__(self, store: Store) -> None:
        self.url = store.url
        self._store = store

    def get(self, key: str, **options: Any) -> bytes:
        return self._store.get(key, **options)

    def open(self, key: str, **options: Any) -> Reader:
        return self._store.open(key, **options)


def read(store: Store, format_: ShardFormat, samples: list[IndexedSample]) -> list[Parts]:
    limited: Any = GetAndOpen(store)
    return read_back(limited, format_, samples)


def test_samples_are_read_back_by_the_index(store, format_):
    result = build(store, format_)
    rows = pa.Table.from_batches(result.samples.read(), ROWS)
    rows.validate(full=True)
    samples = indexed(result)
    assert [(s.key, s.label) for s in samples] == [(c.key, c.label) for c in CONTENTS]
    assert read(store, format_, samples) == [expected(content) for content in CONTENTS]
    sources = [part["source"] for row in rows.to_pylist() for part in row["parts"]]
    assert sources.count(None) == sum(content.label is not None for content in CONTENTS)
    for step in (2, 5):
        some = [expected(content) for content in CONTENTS[1::step]]
        assert read(store, format_, samples[1::step]) == some
    for sample, content in zip(samples, CONTENTS, strict=True):
        assert read(store, format_, [sample]) == [expected(content)]
    many = CONTENTS.index(next(content for content in CONTENTS if content.key == "b/many"))
    limited: Any = GetAndOpen(store)
    with format_.open(limited, result.name) as reader:
        some = samples[many].parts[1:3]
        found = reader.read(samples[many], some)
    assert found == {part.ext: expected(CONTENTS[many])[part.ext] for part in some}


def test_a_part_is_where_the_index_says(store, format_):
    result = build(store, format_)
    data = store.get(result.name)
    for sample, content in zip(indexed(result), CONTENTS, strict=True):
        for part in sample.parts:
            if part.offset is not None:
                body = data[part.offset : part.offset + part.length]
                assert body == expected(content)[part.ext]


@pytest.mark.parametrize(("concurrency", "memory_bytes"), [(1, 800), (4, 800), (4, 1 << 24)])
def test_the_bytes_follow_from_the_samples_alone(store, format_, concurrency, memory_bytes):
    result = build(store, format_)
    again = build(store, format_, concurrency=concurrency, memory_bytes=memory_bytes)
    assert compared(again) == compared(result)


@pytest.mark.parametrize("pattern", [".*", "[ -~]{1,50}"])
def test_many_small_samples_are_written_as_each_of_them(store, format_, pattern):
    """Those that are read one after the other are appended together, if the format can do that."""
    some = [content for content in CONTENTS if re.fullmatch(pattern, content.key)]
    many = [
        Content(f"{n:02}/{each.key}", each.parts, each.label) for n in range(30) for each in some
    ]
    result = build(store, format_, many)
    data = store.get(result.name)
    others = (
        build(store, format_, many, concurrency=4),
        build(store, format_, many, hash_beside=False),
    )
    assert compared(*others) == compared(result, result)
    assert store.get(result.name) == data
    assert read(store, format_, indexed(result)) == [expected(content) for content in many]


def test_known_sizes_are_those_that_are_written(store, format_):
    order, result = order_samples(store, CONTENTS), build(store, format_)
    (plan,), sizes = planned(order, format_), format_.sample_sizes(order)
    assert len(sizes) == len(CONTENTS)
    assert min(sizes) > 0
    assert plan.bytes == sum(sizes) + format_.empty_bytes
    assert result.bytes == plan.bytes or not format_.sizes_known
    assert result.bytes == sum(len(store.get(file.name)) for file in result.files)


def test_all_files_have_names_of_their_own(store, format_):
    count = 12 if format_.counted else 0
    names = [format_.shard_name("data-7-train", index, count) for index in range(12)]
    files = [list(format_.file_names(name)) for name in names]
    assert [first for first, *_ in files] == names == sorted(names)
    assert len({name for each in files for name in each}) == sum(map(len, files))
    for some in (names[:1], names[:2], names[1:11:10], names, [*names[:3], names[9], names[11]]):
        patterns = brace_patterns(some)
        assert [name for pattern in patterns for name in expand_braces(pattern)] == some
    result = build(store, format_)
    assert [file.name for file in result.files] == list(format_.file_names(result.name))


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_damage_is_found_or_harmless(store, format_):
    result = build(store, format_)
    samples, contents = indexed(result), [expected(content) for content in CONTENTS]
    found: list[str] = []
    for file in result.files:
        data = store.get(file.name)
        cuts = [data[:-1], data[: len(data) // 2], b""]
        for damaged in [*cuts, *(flipped(data, at) for at in range(0, len(data), 97))]:
            store.put(file.name, damaged)
            try:
                assert read(store, format_, samples) == contents
            except DamageError as error:
                found.append(error.where)
        store.put(file.name, data)
    assert len(found) > 10
    assert all(where.startswith(store.url) for where in found)
