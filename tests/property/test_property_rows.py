"""Rows of text, JSON Lines and CSV as Larder finds them, compared with Python's own splitting."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larder.errors import ObjectError
from larder.manifest.digest import canonical_json
from larder.manifest.manifest_files import read_manifest
from larder.source.expand import line_rows
from larder.source.expand.containers import INDEX, Indexes
from larder.source.expand.line_rows import index_lines
from larder.source.expand.row_values import Named
from larder.source.expand.table_rows import write_csv_rows
from tests.support.memory import MemoryStore, forget

SAME = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def store() -> Iterator[MemoryStore]:
    yield MemoryStore("rows")
    forget("rows")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_rows, "_PIECE_BYTES", 7)
    monkeypatch.setattr(line_rows, "_MOST_LINES", 2)


def rows_of(
    store: MemoryStore, data: bytes, folder: Path, read: Any, **options: Any
) -> list[tuple[str, bytes, str | None]]:
    """The name, the content and the problem of each row."""
    info = store.put("x", data)
    path = folder / "index"

    with Indexes(store).writer("own", path) as writer:
        read(store, info, writer, named=Named(None), **options)
    found = [row for batch in read_manifest(path, INDEX) for row in batch.to_pylist()]
    container = store.get("own") if read is write_csv_rows and found else data
    return [
        (row["name"], container[row["offset"] : row["offset"] + row["size_bytes"]], row["problem"])
        for row in found
    ]


@SAME
@given(st.lists(st.binary(max_size=20)).map(b"\n".join), st.booleans())
def test_lines_are_those_of_python(store, tmp_path, data, is_json):
    expected = []
    body = data.removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(body.split(b"\n")):
        line = line.removesuffix(b"\r")
        if line.strip():
            expected.append((f"{number:09}.{'json' if is_json else 'txt'}", line))
    found = rows_of(store, data, tmp_path, index_lines, is_json=is_json)
    assert [row[:2] for row in found] == expected
    for _, line, problem in found:
        try:
            text = line.decode()
            if is_json:
                json.loads(text, parse_constant=int)
        except ValueError:
            assert problem is not None
        else:
            assert problem is None


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@SAME
@given(st.lists(VALUES), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_every_json_value_is_a_row(store, tmp_path, values, end, last):
    text = end.join(json.dumps(value) for value in values) + (end if last else "")
    found = rows_of(store, text.encode(), tmp_path, index_lines, is_json=True)
    assert [json.loads(content) for _, content, _ in found] == values
    assert not any(problem for *_, problem in found)


ENCODABLE = st.characters(exclude_categories=["Cs"])


@SAME
@given(st.data(), st.sampled_from([",", ";", "\t"]), st.sampled_from(["\n", "\r\n"]))
def test_rows_of_csv_are_those_of_python(store, tmp_path, data, delimiter, end):
    names = st.text(ENCODABLE, min_size=1).filter(lambda name: not name.startswith("\ufeff"))
    header = data.draw(st.lists(names, min_size=1, max_size=4, unique=True))
    cell = st.text(ENCODABLE, max_size=8)
    rows = data.draw(st.lists(st.lists(cell, min_size=len(header), max_size=len(header))))
    target = io.StringIO(newline="")
    csv.writer(target, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(
        [header, *rows]
    )
    content = target.getvalue().encode()
    found = rows_of(store, content, tmp_path, write_csv_rows, delimiter=delimiter)
    assert [each[1] for each in found] == [
        canonical_json(dict(zip(header, row, strict=True))) for row in rows
    ]
    assert not any(problem for *_, problem in found)


@SAME
@given(st.binary(max_size=200))
def test_any_bytes_are_csv_or_an_error(store, tmp_path, data):
    try:
        rows_of(store, data, tmp_path, write_csv_rows, delimiter=",")
    except ObjectError as error:
        assert error.code == "object.format"  # noqa: PT017 - some bytes are CSV
