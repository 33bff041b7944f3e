"""Rows of tables as samples, and what other programs leave beside them."""

import io
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives_lab import reads, samples, tar
from pipeline_lab import Lab, directory_lab, write
from pydantic import ValidationError
from required import at_push
from test_annotations import as_csv, as_lines

from larder.config.models.locations import TableRows
from larder.jobs.results import RefusedError, RunError

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
MACOS = '"**/._*", "**/.DS_Store", "**/__MACOSX/**"'


def lab_of(folder: Path, objects: Mapping[str, bytes], source: Any, **fields: Any) -> Lab:
    plain = {"labels": None, "cache": None, "validate": "none"}
    lab = directory_lab(folder, objects, **{**plain, **fields})
    return Lab({"url": lab.source, **source}, lab.storage, lab.output, lab.fields)


def row_lab(folder: Path, objects: Mapping[str, bytes], **rows: Any) -> Lab:
    return lab_of(folder, objects, {"rows": rows})


def made(lab: Lab) -> dict[str, dict[str, bytes]]:
    lab.prepare()
    return samples(lab)


def refusals(lab: Lab, **fields: Any) -> dict[str, tuple[str, str]]:
    """By key, the code and the hint of what is refused."""
    with pytest.raises((RunError, RefusedError)) as caught:
        lab.plan(**fields)
    return {each.key: (each.code, str(caught.value)) for each in caught.value.report.failures}


def parquet(**columns: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


def test_a_delimiter_of_files_that_are_named(tmp_path):
    rows = {"format": "csv", "files": "*.data", "delimiter": ";"}
    lab = row_lab(tmp_path, {"x.data": b"a;b\n1;2\n"}, **rows)
    assert made(lab) == {"x.data/000000000": {"json": b'{"a":"1","b":"2"}'}}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.jsonl", b'{"id":"a"}\n{}\n'),
        ("x.csv", b"id,v\na,1\na,2\nb,3\n"),
        *at_push(("x.csv", b"id,v\na,1\n/b,2\n")),
    ],
    ids=["no key", "twice", "a slash"],
)
def test_bad_rows_are_named(tmp_path, name, data):
    lab = row_lab(tmp_path, {name: data}, key="id")
    ((key, (code, _)),) = refusals(lab).items()
    assert (code, key.startswith(f"{name}/")) == ("config.bad_key", True)
    assert lab.prepare(on_bad_key="skip")["skipped"] == 1
    assert len(samples(lab)) >= 1


def test_damaged_tables_are_all_named(tmp_path):
    lab = row_lab(tmp_path, {"x.csv": b"a,a\n1,2\n", "y/x.parquet": b"hello"})
    found = refusals(lab, on_bad_key="skip")
    assert {key: code for key, (code, _) in found.items()} == dict.fromkeys(
        ("x.csv", "y/x.parquet"), "object.format"
    )


def test_label_files_are_not_tables(tmp_path):
    lab = row_lab(tmp_path, {"x.jsonl": b"1\n2\n", "labels.txt": b"000000000 a\n000000001 b\n"})
    labels = {"from": "folder", "files": {"train": "labels.txt"}}
    lab.prepare(labels=labels)
    assert [parts["cls"] for parts in samples(lab).values()] == [b"a", b"b"]


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ({"rows": {}}, 1),
        ({"archives": "expand"}, 1),
        ({"rows": {}, "archives": "expand"}, 2),
        ({}, 0),
    ],
)
def test_nothing_to_expand_is_a_warning(tmp_path, source, count):
    lab = lab_of(tmp_path, {"x.json.gz": b"1", "tables.bin": b"2"}, source)
    codes = [each["code"] for each in lab.plan()["warnings"]]
    assert codes.count("nothing_expanded") == count


@pytest.mark.parametrize(("name", "file_of"), [("x.csv", as_csv), *at_push(("x.jsonl", as_lines))])
def test_a_row_more_packs_one_sample(tmp_path, name, file_of):
    """Also where the others have moved in the file."""
    rows = [{"id": f"{number:03}", "v": f"{number}"} for number in range(40)]
    lab = row_lab(tmp_path, {name: file_of(rows)}, key="id")
    lab.prepare()
    grown = [{"id": "0005", "v": "1"}, *rows[:7], {"id": "007", "v": "70"}, *rows[8:]]
    write(tmp_path / "source", {name: file_of(grown)})
    found = lab.plan()["growth"]["samples"]
    assert (found["added"], found["changed"], found["unchanged"]) == (1, 1, 39)
    values = {key: json.loads(parts["json"]) for key, parts in samples(lab, lab.prepare()).items()}
    assert values == {f"{name}/{row['id']}": row for row in grown}


@pytest.mark.push
def test_tables_are_read_once(tmp_path):
    rows = [{"id": f"{at}", "v": "x" * 1_000} for at in range(100)]
    lab = row_lab(tmp_path, {"x.csv": as_csv(rows), "y.csv": b"id,v\nb,2\n"})
    _, calls = reads(lab.prepare, ".csv")
    assert sorted(call.key for call in calls) == ["x.csv", "y.csv"], "with one request each"
    document, calls = reads(lab.prepare, ".csv")
    assert (document["status"], calls) == ("reused", [])
    document, calls = reads(partial(lab.prepare, shards={"bytes": 9_000}), ".csv")
    assert (document["status"], calls) == ("built", [])


def test_a_container_that_was_deleted_is_made_again(tmp_path):
    lab = row_lab(tmp_path, {"x.csv": as_csv([{"id": "a", "v": "1"}])})
    expected = made(lab)
    with lab.opened_root() as root:
        keys = [info.key for page in root.list("work/derived/") for info in page]
        assert len(keys) == 2
        root.delete(next(key for key in keys if key.endswith(".rows")))
    document, calls = reads(partial(lab.prepare, growth={"mode": "rebuild"}), "x.csv")
    assert document["status"] == "reused"
    write(str(lab.source["url"]), {"y.csv": b"id,v\nb,2\n"})  # type: ignore[index]
    document, calls = reads(lab.prepare, "x.csv")
    assert calls
    assert samples(lab, document) == expected | {"y.csv/000000000": {"json": b'{"id":"b","v":"2"}'}}


@pytest.mark.parametrize(
    ("name", "file_of"), [("x.jsonl", as_lines), *at_push(("x.csv", as_csv), ("x.parquet", None))]
)
def test_rows_are_left_out_by_their_keys(tmp_path, name, file_of):
    rows = [{"id": f"r{number}", "n": str(number)} for number in range(12)]
    columns = pa.Table.from_pylist(rows).to_pydict()
    data = file_of(rows) if file_of else parquet(**columns)
    lab = row_lab(tmp_path, {name: data}, key="id")
    assert len(made(lab)) == 12
    fields = {"key": "id", "exclude": [f"{name}/r1", f"{name}/r1.*", f"{name}/r3.json", "*/r1?.*"]}
    omitting = Lab({**lab.source, "rows": fields}, lab.storage, lab.output, lab.fields)
    plan = omitting.plan()
    assert plan["excluded"]["excluded"]["count"] == 4
    assert plan["growth"]["samples"]["removed"] == 4
    left = [f"{name}/r{number}" for number in (0, 2, *range(4, 10))]
    assert sorted(samples(omitting, omitting.prepare())) == left
    assert len(samples(lab, lab.prepare())) == 12


def test_a_bad_row_that_is_left_out_is_no_failure(tmp_path):
    data = b'{"id": "a"}\n{"id": "a.b"}\n{"id": "c"}\n{"id": \n{"id": "c"}\n'
    exclude = ["x.jsonl/000000001.*", "x.jsonl/000000003.*", "x.jsonl/c.*"]
    assert made(row_lab(tmp_path, {"x.jsonl": data}, key="id", exclude=exclude)) == {
        "x.jsonl/a": {"json": b'{"id": "a"}'}
    }


@pytest.mark.push
def test_many_rows_are_read_with_few_requests(tmp_path):
    lines = b"".join(b'{"n":%d}\n' % number for number in range(5_000))
    lab = lab_of(tmp_path, {"x.jsonl": lines}, {"rows": {}}, shards={"bytes": "150 MB"})
    _, calls = reads(lab.prepare, "x.jsonl")
    assert len(calls) < 25  # 256 rows at a time from a directory, 1,000 from a bucket
    assert len(samples(lab)) == 5_000


@pytest.mark.parametrize(
    "rows",
    [
        {"format": "text", "key": "id"},
        {"format": "jsonl", "delimiter": ";"},
        {"format": "csv", "columns": {"a": "jpg"}},
        {"files": "*.dat"},
        {"columns": {"a": ".jpg"}},
        {"columns": {"a": "json"}},
        {"columns": {"a": "jpg", "b": "jpg"}},
        {"delimiter": "::"},
        {"delimiter": '"'},
    ],
)
def test_options_that_do_not_fit_are_refused(rows):
    with pytest.raises(ValidationError):
        TableRows.model_validate(rows)


def test_a_row_whose_parts_are_null_is_a_bad_sample(tmp_path):
    image = pa.array([{"bytes": b"a", "path": "0"}, {"bytes": None, "path": "1"}, None], IMAGE)
    columns = {"image.bytes": "bin", "image.path": None, "label": None}
    data = {"t.parquet": parquet(image=image, label=["cat", "dog", "eel"])}
    lab = lab_of(tmp_path, data, {"rows": {"columns": columns}}, labels={"column": "label"})
    refused = refusals(lab)
    keys = ["t.parquet/000000001", "t.parquet/000000002"]
    assert {key: code for key, (code, _) in refused.items()} == dict.fromkeys(keys, "sample.empty")
    assert "on_bad_sample" in refused[keys[0]][1]
    document = lab.prepare(on_bad_sample="skip")
    assert document["skipped"] == 2
    assert [failure["key"] for failure in document["failures"]] == keys
    assert samples(lab) == {"t.parquet/000000000": {"bin": b"a", "cls": b"cat"}}


def test_a_table_of_nulls_is_refused_by_its_rows(tmp_path):
    data = {"t.parquet": parquet(image=pa.array([None, None], pa.binary()))}
    lab = lab_of(tmp_path, data, {"rows": {"columns": {"image": "bin"}}})
    assert len(refusals(lab)) == len(refusals(lab, on_bad_sample="skip")) == 2


LEFT = ("._p.parquet", "d/._x.tar", ".DS_Store", "d/.DS_Store", "__MACOSX/d/._x.tar", "d/._a.txt")


@pytest.mark.parametrize("source", [{}, {"archives": "expand", "rows": {}}])
def test_the_files_of_macos_are_excluded_by_one_hint(tmp_path, source):
    objects = dict.fromkeys(LEFT, b"\0\5\x16\7macOS") | {"d/a.txt": b"line\n", "b.bin": b"b"}
    lab = lab_of(tmp_path, objects, source)
    refused = refusals(lab)
    assert all(MACOS in hint for _, hint in refused.values())
    assert set(refused) <= set(LEFT)
    skipped = lab.prepare(on_bad_key="skip")
    assert skipped["skipped"] == len(LEFT)
    excluded = {**lab.source, "exclude": json.loads(f"[{MACOS}]")}
    other = Lab(excluded, str(tmp_path / "other"), lab.output, lab.fields)
    assert other.prepare()["skipped"] == 0
    assert samples(other) == samples(lab)


def test_archives_of_macos_within_an_archive_are_not_opened(tmp_path):
    data = tar(dict.fromkeys(("a.txt", "./._n.tar", "._a.txt"), b"A"))
    lab = lab_of(tmp_path, {"x.tar": data}, {"archives": "expand"})
    assert set(refusals(lab)) == {"x.tar/._n.tar", "x.tar/._a.txt"}
    lab.prepare(on_bad_key="skip")
    assert list(samples(lab)) == ["x.tar/a"]
