"""Tables and annotation files as programs leave them: what rows become, and what is refused."""

import csv
import datetime
import io
import json
import math
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import ValidationError

from larder.config.models.joins import Annotations
from larder.config.models.locations import TableRows
from larder.manifest.manifest_files import read_manifest
from larder.source.expand import line_rows, table_rows
from larder.source.expand.annotations import index_annotations
from larder.source.expand.containers import INDEX, Indexes, objects_in
from larder.source.expand.table_rows import row_expansion
from larder.store import Store, open_store
from larder.store.derived import DerivedObjects
from tests.support.errors import larder_error

HALF = json.dumps("\ud83d").encode()
"""Half a pair of surrogates."""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path / "store"))


def read_table(
    store: Store, folder: Path, file: str, data: bytes, label: str | None = None, **options: Any
) -> dict[str, bytes | None]:
    """The parts of the rows of a table by name; None for a row that is refused."""
    expansion = row_expansion(TableRows.model_validate(options), (), label, store, Indexes(store))
    container = expansion.indexed(store.put(file, data), folder / "index", cast(Any, None))
    index = list(read_manifest(folder / "index", INDEX))
    found = {name: None for batch in index for name in batch.column("name").to_pylist()}
    source, prefix = DerivedObjects(store, lambda: store), f"{file}/"
    rows = objects_in(index, container.end, 0, prefix=prefix)
    for row in (row for batch in rows for row in batch.to_pylist()):
        found[row["key"].removeprefix(prefix)] = source.get(row["key"], if_match=row["etag"])
    return found


def parquet(*, row_group_size: int = 2, **columns: Any) -> bytes:
    target = io.BytesIO()
    table = pa.table(columns)
    options = {"row_group_size": row_group_size, "compression": "none"}
    pq.write_table(table, target, **options, write_page_checksum=True)
    return target.getvalue()


def json_of(found: dict[str, bytes | None]) -> list[Any]:
    return [json.loads(data) for name, data in found.items() if data and name.endswith("json")]


ID = {"key": "id"}
ROWS: dict[str, tuple[str, bytes, dict[str, Any], dict[str, bytes | None]]] = {
    "JSON as it is": (
        "x.jsonl",
        b'\xef\xbb\xbf{"b": 1, "a":"\xc3\xa9"}\r\n\r\n  \n[1,2]\n"no newline"',
        {},
        {
            "000000000.json": b'{"b": 1, "a":"\xc3\xa9"}',
            "000000003.json": b"[1,2]",
            "000000004.json": b'"no newline"',
        },
    ),
    "the index of pandas": (
        "x.csv",
        b",id,text\n0,a,1\n",
        ID,
        {"a.json": b'{"":"0","id":"a","text":"1"}'},
    ),
    "commas at the ends": ("x.csv", b"id,b,\na,1,\n", ID, {"a.json": b'{"":"","b":"1","id":"a"}'}),
    "blank lines first": ("x.csv", b"\n\r\nid\na\n", ID, {"a.json": b'{"id":"a"}'}),
    "not JSON": ("x.jsonl", b'1\n{"a":\n', {}, {"000000000.json": b"1", "000000001.json": None}),
    "too deep": ("x.jsonl", b"[" * 100_000, {}, {"000000000.json": None}),
    "NaN": ("x.jsonl", b"NaN\n", {}, {"000000000.json": None}),
    "no key": ("x.jsonl", b"{}\n", ID, {"000000000.json": None}),
    "no object": ("x.jsonl", b"[]\n", ID, {"000000000.json": None}),
    "a dot": ("x.jsonl", b'{"id":"b.c"}\n', ID, {"000000000.json": None}),
    "a slash": ("x.csv", b"id\n/b\n", ID, {"000000000.json": None}),
    "fields": ("x.csv", b"a,b\n3\n", {}, {"000000000.json": None}),
    "half a key": ("x.jsonl", b'{"id":' + HALF + b"}\n", ID, {"000000000.json": None}),
}


@pytest.mark.parametrize(("key", "data", "options", "expected"), ROWS.values(), ids=ROWS)
def test_rows_of_text(store, tmp_path, key, data, options, expected):
    assert read_table(store, tmp_path, key, data, **options) == expected


@pytest.mark.parametrize("label", [HALF, b"true", b"[1]"])
def test_a_class_that_is_no_text_is_a_bad_row(store, tmp_path, label):
    data = b'{"c":' + label + b'}\n{"c":null}\n{"c":7}\n'
    found = read_table(store, tmp_path, "x.jsonl", data, "c")
    assert [value is None for value in found.values()] == [True, False, False]


def test_values_of_parquet(store, tmp_path):
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    fields = {"bytes": pa.binary(), "path": pa.string(), "b.c": pa.int8(), "ns": pa.duration("ns")}
    image = {"bytes": b"1", "path": "p", "b.c": 1, "ns": 1}
    data = parquet(
        n=[1, 2**60, None],
        x=[0.5, math.nan, math.inf],
        when=pa.array([when] * 3, pa.timestamp("us", tz="UTC")),
        pandas=pa.array([1_577_840_523_123_456_000] * 3, pa.timestamp("ns")),
        price=pa.array([Decimal("1.50")] * 3),
        image=pa.array([image, {"bytes": b"2"}, None], pa.struct(fields)),
        text=pa.array(["é", None, "c"]).dictionary_encode(),
        note=pa.array(["x", None, None], pa.string_view()),
        raw=[b"\0", b"", b"\1"],
        tags=[["a"], [], None],
    )
    columns = {"image.bytes": "png", "text": "txt", "note": "md"}
    columns |= dict.fromkeys(["image.b.c", "image.ns", "raw"])
    found = read_table(store, tmp_path, "x.parquet", data, columns=columns)
    assert {name: value for name, value in found.items() if not name.endswith("json")} == {
        "000000000.png": b"1",
        "000000000.txt": "é".encode(),
        "000000000.md": b"x",
        "000000001.png": b"2",
        "000000002.txt": b"c",
    }
    same = {"when": when.isoformat(), "pandas": "2020-01-01T01:02:03.123456", "price": "1.50"}
    assert json_of(found) == [
        {**same, "n": 1, "x": 0.5, "image": {"path": "p"}, "tags": ["a"]},
        {**same, "n": 2**60, "x": None, "image": {"path": None}, "tags": []},
        {**same, "n": None, "x": None, "image": None, "tags": None},
    ]


def test_extension_types_are_their_values(store, tmp_path):
    def extension(kind: Any, values: Any, storage: Any) -> pa.Array:
        return pa.ExtensionArray.from_storage(kind, pa.array(values, storage))

    number = uuid.UUID(int=1)
    ids = extension(pa.uuid(), [number.bytes], pa.binary(16))
    tensor = pa.fixed_shape_tensor(pa.int32(), (2,))
    data = parquet(
        id=ids,
        s=pa.StructArray.from_arrays([ids], ["u"]),
        l=pa.ListArray.from_arrays([0, 1], ids),
        json=extension(pa.json_(), ['{"a":1}'], pa.string()),
        bool=extension(pa.bool8(), [1], pa.int8()),
        tensor=extension(tensor, [[1, 2]], pa.list_(pa.int32(), 2)),
        opaque=extension(pa.opaque(pa.int32(), "t", "v"), [5], pa.int32()),
    )
    found = read_table(store, tmp_path, "x.parquet", data, **ID)
    assert list(found) == [f"{number}.json"]
    texts = {"id": str(number), "s": {"u": str(number)}, "l": [str(number)], "json": '{"a":1}'}
    assert json_of(found) == [{**texts, "bool": True, "tensor": [1, 2], "opaque": 5}]


IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
IMAGES = pa.array([{"bytes": b"a", "path": "0"}, {"bytes": None, "path": "1"}, None], IMAGE)


def test_a_row_whose_parts_are_null_is_a_bad_row(store, tmp_path):
    """Whether rows have JSON follows from the columns, not from a struct that is null in a row."""
    for path in (None, "txt"):
        columns = {"image.bytes": "bin", "image.path": path}
        found = read_table(store, tmp_path, "x.parquet", parquet(image=IMAGES), columns=columns)
        others = {"000000000.txt": b"0", "000000001.txt": b"1"} if path else {}
        bad = {"000000002.bin": None} if path else {"000000001.bin": None, "000000002.bin": None}
        assert found == {"000000000.bin": b"a", **others, **bad}


DAMAGED = bytearray(parquet(n=list(range(10_000)), row_group_size=10_000))
DAMAGED[100] ^= 0xFF
TWINS = pa.StructArray.from_arrays([pa.array([b"1"]), pa.array([b"2"])], ["b", "b"])
AMBIGUOUS = parquet(**{"image.bytes": ["FLAT"], "image": IMAGES[:1]})
BYTES = {"image.bytes": "bin", "image.path": None}
LEFT_OUT = {"columns": {"image": None}}
REFUSED: dict[str, tuple[str, bytes, dict[str, Any]]] = {
    "no header": ("x.csv", b"", {}),
    "an empty name": ("x.csv", b"a,,b\n1,2,3\n", {}),
    "two columns": ("x.csv", b"a,a\n1,2\n", {}),
    "no key": ("x.csv", b"a\n1\n", ID),
    "an open quote": ("x.csv", b'a,b\n1,"2\n3,4\n', {}),
    "names in quotes": ("x.csv", b'"id";"text"\n"a";"1"\n', {}),
    "a line for Excel": ("x.csv", b"sep=,\na,b\n1,2\n", {"delimiter": ","}),
    "another line for Excel": ("x.csv", b"sep=;\na;b\n1;2\n", {"delimiter": ";"}),
    "not Parquet": ("x.parquet", b"hello" * 100, {}),
    "a damaged page": ("x.parquet", bytes(DAMAGED), {}),
    "binary values": ("x.parquet", parquet(image=[{"bytes": b"1"}]), {}),
    "no such column": ("x.parquet", parquet(n=[1]), {"columns": {"picture": "jpg"}}),
    "numbers as a part": ("x.parquet", parquet(n=[1]), {"columns": {"n": "bin"}}),
    "a column and a field": ("x.parquet", AMBIGUOUS, {"columns": BYTES}),
    "a column and a field as key": ("x.parquet", AMBIGUOUS, LEFT_OUT | {"key": "image.bytes"}),
    "a column and a field as class": ("x.parquet", AMBIGUOUS, LEFT_OUT | {"label": "image.bytes"}),
    "two fields": ("x.parquet", parquet(a=TWINS), {"columns": {"a.b": "bin"}}),
    "a long line of text": ("x.txt", b"short\n" * 10 + b"x" * 3_000_000 + b"\n", {}),
    "a long line of CSV": ("x.csv", b"a,b\n" + b"1," * 5_000 + b"\n", {}),
    "a long quote": ("x.csv", b'a,b\n1,"' + b"2\n" * 5_000, {}),
}


@pytest.fixture
def short_lines(monkeypatch):
    """Lines of at most 3,000 bytes."""
    before = csv.field_size_limit()
    monkeypatch.setattr(line_rows, "_PIECE_BYTES", 1_000)
    for module in (line_rows, table_rows):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", 3_000)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("short_lines")
@pytest.mark.parametrize(("key", "data", "options"), REFUSED.values(), ids=REFUSED)
def test_a_table_that_cannot_be_read_is_refused(store, tmp_path, key, data, options):
    with larder_error("object.format"):
        read_table(store, tmp_path, key, data, **options)


COMPRESSED = ("b.jsonl.gz", "b.ndjson.zst", "b.CSV.GZ", "b.tsv.xz", "b.txt.bz2", "b.csv.zip")


def test_compressed_tables_are_refused_by_name(store):
    """Other compressed files are objects."""
    every = row_expansion(TableRows(), (), None, store, Indexes(store))
    assert every.matches(pa.array([*COMPRESSED, "c.json.gz"])).tolist() == [True] * 6 + [False]
    assert all(map(every.refused, COMPRESSED))
    lines = row_expansion(TableRows(format="jsonl"), (), None, store, Indexes(store))
    assert lines.matches(pa.array(COMPRESSED)).tolist() == [True, True] + [False] * 4


def read_entries(
    store: Store, folder: Path, file: str, data: bytes, label: str | None = None, **options: Any
) -> dict[str, bytes]:
    given = Annotations.model_validate({"files": file, **options})
    indexes, info = Indexes(store), store.put(file, data)
    indexed = index_annotations(store, info, given, label, indexes, folder)
    source = DerivedObjects(store, lambda: store)
    return {
        f"{row['name']}/{row['ext']}": source.get(row["key"], if_match=row["etag"])
        for batch in indexed.entries()
        for row in batch.to_pylist()
    }


SEPARATED = {
    "semicolons": ("t.csv", b"id;text\na;1\nb;2\n", ";"),
    "decimal commas": ("t.csv", b"id;text,more;x\na;1,5;3\n", ";"),
    "tabs": ("t.csv", b"id\ttext\na\t1\n", "\t"),
    "bars": ("t.csv", b"id|text\na|1\n", "|"),
    "commas": ("t.tsv", b"id,text\na,1\n", ","),
    "a mark": ("t.csv", b"\xef\xbb\xbfid;text\na;1\n", ";"),
}


@pytest.mark.parametrize(("key", "data", "right"), SEPARATED.values(), ids=SEPARATED)
def test_another_delimiter_than_the_configured_one_is_refused(store, tmp_path, key, data, right):
    with larder_error("object.format") as caught:
        read_table(store, tmp_path, key, data)
    assert "source.rows.delimiter" in str(caught.value)
    with larder_error("config.annotations") as caught:
        read_entries(store, tmp_path, key, data, key="id")
    assert "samples.annotations.delimiter" in str(caught.value)
    rows = read_table(store, tmp_path, key, data, key="id", delimiter=right)
    entries = read_entries(store, tmp_path, key, data, key="id", delimiter=right)
    assert rows["a.json"] == entries["a/json"]
    wrong = "\t" if key.endswith(".tsv") else ","
    assert read_table(store, tmp_path, key, data, delimiter=wrong)


def test_the_delimiter_of_annotations_is_of_csv():
    with pytest.raises(ValidationError, match="delimiter"):
        Annotations.model_validate({"files": "a", "format": "jsonl", "delimiter": ";"})


IMAGE_1 = b'{"images": [{"id": 1, "file_name": "a"}'
INVALID = {
    "x.json": [
        *(b"", b"{}", b'{"images": [{"id": 1', b'{"images": [{"id": 1}]} x'),
        b'{"images": [{"file_name": "a"}]}',
        b'{"images": [{"id": true}]}',
        IMAGE_1 + b', {"id": 1}]}',
        b'{"images": [{"id": 1, "w": NaN}]}',
        IMAGE_1 + b'], "annotations": [{"image_id": 2}]}',
        b'{"images": [{"id": 1, "file_name": ' + HALF + b"}]}",
    ],
    "x.csv": [
        *(b"", b"a,a\n", b"file_name,b\nx\n", b"name,b\nx,y\n", b"file_name,b\n,y\n"),
        *(b'file_name\n"x\n', b"file_name\n\xff\n", b'"file_name";"b"\n"a";"1"\n'),
    ],
    "x.jsonl": [
        *(b"[1]\n", b'{"file_name": "a"}\n{', b'{"file_name": false}', b"[" * 100_000),
        b'{"file_name": "a", "x": 1e999}',
        b'{"file_name": ' + HALF + b"}",
        b'{"file_name": "a", "x": ' + HALF + b"}",
    ],
    "x.parquet": [b"PAR1"],
    "x.txt": [b""],
}


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize(
    ("key", "data"), [(key, data) for key, files in INVALID.items() for data in files]
)
def test_an_invalid_annotation_file_is_named(store, tmp_path, key, data, many):
    with larder_error("config.annotations") as caught:
        read_entries(store, tmp_path, key, data, many=many)
    assert caught.value.where.startswith(key)


@pytest.mark.parametrize(("key", "where"), [("x.jsonl", "x.jsonl, line 2"), ("x.json", "image 1")])
def test_a_class_of_an_annotation_that_is_no_text_is_named(store, tmp_path, key, where):
    images = [
        b'{"id": %d, "file_name": "%d", "c": %s}' % (at, at, (b"1", HALF)[at]) for at in (0, 1)
    ]
    data = b"\n".join(images) if key == "x.jsonl" else b'{"images": [%s]}' % b",".join(images)
    with larder_error("config.label") as caught:
        read_entries(store, tmp_path, key, data, "c")
    assert caught.value.where.endswith(where)
