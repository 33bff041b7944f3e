"""Records of every schema are read back unchanged, and every flipped bit is found."""

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from larder.cache.build import build_file
from larder.cache.file import open_file
from larder.cache.group import GROUP_BYTES, Groups, group_value, grouped
from larder.cache.record import Codec, Places, empty_columns
from larder.cache.schema import DTYPES, Field, RecordSchema
from larder.errors import DamageError, FatalError

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
        values[field.name] = draw(hnp.arrays(dtype, tuple(shape)))
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
        places = Places(memory, *np.array([[number], [0], [len(record)]]))
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
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.mdb"
        facts = build_file(
            Codec(schema).encode_each(rows),
            schema,
            path,
            limit_bytes=1 << 24,
            transaction_bytes=transaction_bytes,
            map_bytes=1 << 16,
            group_bytes=group_bytes,
        )
        with open_file(path, facts, verify=True) as file:
            file.verify()
            for found, values in zip(file, rows, strict=True):
                assert_same(found, values, schema)
            columns = empty_columns(schema.fields, 2 * len(rows))
            numbers = np.arange(-len(rows), len(rows))
            file.read_into(columns, range(len(numbers))[::-1], numbers)
            for row, number in enumerate(numbers[::-1].tolist()):
                found = {name: column[row] for name, column in columns.items()}
                assert_same(found, rows[number], schema)


LARGE = st.sampled_from([4, 5, 1_000, GROUP_BYTES - 1, GROUP_BYTES, GROUP_BYTES + 1, 300_000])


@given(st.lists(LARGE, max_size=30))
@example([GROUP_BYTES - 1, 300_000, 4, GROUP_BYTES, 4, 4])
def test_groups_are_consecutive_and_large(sizes):
    groups = list(grouped((bytes([n]) * size for n, size in enumerate(sizes)), GROUP_BYTES))
    assert [record[0] for group in groups for record in group] == [*range(len(sizes))]
    for group, following in zip(groups, [*groups, None][1:], strict=True):
        size = sum(map(len, group))
        assert len(group) == 1 or max(map(len, group)) < GROUP_BYTES > size - len(group[-1])
        assert size >= GROUP_BYTES or following is None or len(following[0]) >= GROUP_BYTES
        assert bytes(group_value(group, is_fixed=True)) == b"".join(group)
        value = group_value(group, is_fixed=False)
        memory, place = memoryview(b"before" + value), (len(b"before"), len(value))
        groups = Groups(np.array([len(group)]), memory, lambda *_, place=place: place, None)
        places = groups.places(np.arange(len(group)))
        assert [record for _, record in places.records()] == group
