"""Records of every schema, and batches of many files, are read back; flipped bits are found."""

import pickle
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from larder.cache import cache_file_build
from larder.cache.cache_file_build import build_file
from larder.cache.cache_record import Codec, RecordPlaces, empty_columns
from larder.cache.file import CacheFileReader, open_file
from larder.cache.group import GROUP_BYTES
from larder.cache.schema import DTYPES, Field, RecordSchema
from larder.errors import DamageError, FatalError
from larder.readers.cache_reader import CacheReader
from larder.versions.omitted import Omitted

DIMENSIONS = st.one_of(st.none(), st.integers(0, 4))


@st.composite
def schemas(draw: st.DrawFn) -> RecordSchema:
    names = draw(st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=4, unique=True))
    return RecordSchema(
        tuple(
            Field(
                name.encode(errors="replace").decode(),
                draw(st.sampled_from(sorted(DTYPES))),
                tuple(draw(st.lists(DIMENSIONS, max_size=3))),
                draw(st.booleans()),
            )
            for name in names
        )
    )


@st.composite
def records(draw: st.DrawFn, schema: RecordSchema) -> dict[str, Any]:
    values = {}
    for field in schema.fields:
        if field.optional and draw(st.booleans()):
            continue
        shape = [draw(st.integers(0, 4)) if size is None else size for size in field.shape]
        order = draw(st.sampled_from("<>="))
        dtype = np.dtype(field.dtype).newbyteorder(order)
        array = draw(hnp.arrays(dtype, tuple(shape)))
        layout = draw(
            st.sampled_from([np.asarray, np.asfortranarray, lambda each: each[::-1][::-1]])
        )
        values[field.name] = layout(array) if array.ndim else array
    return values


@st.composite
def cases(draw: st.DrawFn) -> tuple[RecordSchema, list[dict[str, Any]]]:
    # Schemas with names that are not strings are refused; others are read.
    try:
        schema = draw(schemas())
    except FatalError:
        schema = RecordSchema((Field("x", "uint8", (None,)),))
    return schema, draw(st.lists(records(schema), max_size=5))


def assert_same(found: Any, wanted: dict[str, Any], schema: RecordSchema) -> None:
    for field in schema.fields:
        if field.name not in wanted:
            assert found.get(field.name) is None
            continue
        array = found[field.name]
        assert array.dtype == field.dtype
        np.testing.assert_array_equal(array, wanted[field.name])


@given(cases())
def test_records_come_back(case):
    schema, rows = case
    assert RecordSchema.parse(schema.document(), "") == schema
    codec = Codec(schema)
    columns = empty_columns(schema.fields, len(rows))
    for number, values in enumerate(rows):
        record = codec.encode(values, number)
        codec.check(record, number)
        decoded = codec.decode(memoryview(record))
        assert_same(decoded, values, schema)
        assert codec.encode(decoded, number) == record
        memory = memoryview(record)
        places = RecordPlaces(memory, *np.array([[number], [0], [len(record)]]))
        codec.read_rows(columns, np.array([number]), places, check=True)
    for number, values in enumerate(rows):
        row = {name: column[number] for name, column in columns.items()}
        assert_same(row, values, schema)


TWO_ARRAYS = RecordSchema((Field("a", "bool", (None, None)), Field("b", "bool", (None,))))


@example(b"\x00\x00\x00\x81\x00\x00\x04\xfe" + bytes(8), (TWO_ARRAYS, []))  # an offset of 2**65
@example(b"\x00\x00\x00\x81\x00\x00\x04\xfe", (TWO_ARRAYS, []))
@given(st.binary(max_size=80), cases())
def test_any_bytes_decode_or_are_damage(data, case):
    with suppress(DamageError):
        Codec(case[0]).decode(data)


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from([1, 100, 1 << 20]), st.sampled_from([1, 40, GROUP_BYTES]))
def test_parts_come_back(case, transaction_bytes, group_bytes):
    schema, rows = case
    sizes = {"TRANSACTION_BYTES": transaction_bytes, "GROUP_BYTES": group_bytes}
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.multiple(cache_file_build, MAP_BYTES=1 << 16, **sizes),
    ):
        path = Path(folder) / "a.mdb"
        facts = build_file(Codec(schema).encode_each(rows), schema, path)
        with open_file(path, facts, verify=True) as file:
            file.verify()
            for found, values in zip(file, rows, strict=True):
                assert_same(found, values, schema)
            columns = empty_columns(schema.fields, 2 * len(rows))
            numbers = np.arange(2 * len(rows)) // 2
            file.read_into(columns, range(len(numbers))[::-1], numbers)
            for row, number in enumerate(numbers[::-1].tolist()):
                found = {name: column[row] for name, column in columns.items()}
                assert_same(found, rows[number], schema)


SIZES = (0, 1, 2, 7, 12)
"""Records of the files; the numbers of a file begin at 100 times its place."""

Case = list[tuple[int, list[bool]]]
"""For each segment, which file it has, and which of its records are omitted."""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[CacheFileReader]]:
    folder: Path = tmp_path_factory.mktemp("files")
    schema = RecordSchema((Field("x", "int64"), Field("bytes", "uint8", (None,))))
    with ExitStack() as stack:
        readers = []
        for place, size in enumerate(SIZES):
            rows = ({"x": 100 * place + n, "bytes": bytes(n)} for n in range(size))
            encoded = Codec(schema).encode_each(rows)
            facts = build_file(encoded, schema, folder / f"{place}.mdb")
            reader = open_file(folder / f"{place}.mdb", facts)
            readers.append(stack.enter_context(reader))
        yield readers


@st.composite
def splits(draw: st.DrawFn) -> Case:
    places = draw(st.lists(st.integers(0, len(SIZES) - 1), min_size=1, max_size=5))
    masks = (st.lists(st.booleans(), min_size=SIZES[n], max_size=SIZES[n]) for n in places)
    return [(place, draw(mask)) for place, mask in zip(places, masks, strict=True)]


@given(splits(), st.data())
@example([(3, [True] * 7), (4, [False, True] * 6), (0, []), (1, [True])], None)
def test_it_reads_like_the_list_of_what_is_left(files, case, data):
    model = [100 * place + row for place, mask in case for row, gone in enumerate(mask) if not gone]
    omitted = [Omitted.of_mask(np.array(mask, np.bool_)) for _, mask in case]
    reader = CacheReader([files[place] for place, _ in case], omitted)
    check(reader, model, data)


def check(reader: CacheReader, model: list[int], data: st.DataObject | None) -> None:
    assert len(reader) == len(model)
    assert [number(record) for record in reader] == model
    assert [number(reader[at]) for at in range(-len(model), len(model))] == model * 2
    assert [int(x) for x in reader.batch(range(len(model)))["x"]] == model
    for wrong in (len(model), -len(model) - 1):
        with pytest.raises(IndexError, match=f"record {wrong} of {len(model)}"):
            reader[wrong]
    if model and data:
        places = st.integers(-len(model), len(model) - 1)
        indices = data.draw(st.lists(places, max_size=8))
        batch = reader.batch(indices)
        assert [int(x) for x in batch["x"]] == [model[at] for at in indices]
        assert [len(x) for x in batch["bytes"]] == [model[at] % 100 for at in indices]


def number(record: dict[str, Any]) -> int:
    assert len(record["bytes"]) == record["x"] % 100
    return int(record["x"])


def test_it_is_pickled_with_what_is_omitted(files):
    mask = np.arange(12) % 3 == 0
    reader = CacheReader([files[4], files[2]], [Omitted.of_mask(mask), Omitted.none()])
    reader[3]
    with pickle.loads(pickle.dumps(reader)) as copy:
        check(copy, [400 + n for n in range(12) if n % 3] + [200, 201], None)
