"""Tables and archives as other programs leave them: they are read whole, or refused by name."""

import gzip
import io
import json
import tarfile
import uuid
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives_lab import samples
from pipeline_lab import Lab, directory_lab

from larder.errors import ConfigError
from larder.jobs.results import RefusedError, RunError
from tests.support.errors import larder_error

PLAIN: dict[str, Any] = {"labels": None, "cache": None, "validate": "none"}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
HALF = "\ud83d"
MACOS = '"**/._*", "**/.DS_Store", "**/__MACOSX/**"'


def lab_of(folder, objects: Mapping[str, bytes], source: Any = None, **fields: Any) -> Lab:
    lab = directory_lab(folder, objects, **{**PLAIN, **fields})
    return Lab({"url": lab.source, **(source or {})}, lab.storage, lab.output, lab.fields)


def parquet(**columns: Any) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(columns), target)
    return target.getvalue()


def lines(*rows: Any) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def refusals(lab: Lab, **fields: Any) -> dict[str, tuple[str, str]]:
    """By key, the code and the hint of what is refused."""
    with pytest.raises((RunError, RefusedError)) as caught:
        lab.plan(**fields)
    return {each.key: (each.code, str(caught.value)) for each in caught.value.report.failures}


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


def test_whether_rows_have_json_follows_from_the_columns(tmp_path):
    """Not from whether a struct is null in one of them."""
    image = pa.array([{"bytes": b"a", "path": "0"}, None], IMAGE)
    columns = {"image.bytes": "bin", "image.path": "txt"}
    lab = lab_of(tmp_path, {"t.parquet": parquet(image=image)}, {"rows": {"columns": columns}})
    lab.prepare(on_bad_sample="skip")
    assert samples(lab) == {"t.parquet/000000000": {"bin": b"a", "txt": b"0"}}


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ({"columns": {"image.bytes": "bin", "image.path": None}}, None),
        ({"columns": {"image": None}, "key": "image.bytes"}, None),
        ({"columns": {"image": None}}, {"column": "image.bytes"}),
    ],
)
def test_a_column_and_a_field_of_one_name_are_ambiguous(tmp_path, rows, labels):
    image = pa.array([{"bytes": b"STRUCT", "path": "p"}], IMAGE)
    data = {"t.parquet": parquet(**{"image.bytes": ["FLAT"], "image": image})}
    refused = refusals(lab_of(tmp_path, data, {"rows": rows}, labels=labels))
    assert refused["t.parquet"][0] == "object.format"
    assert "'image.bytes'" in refused["t.parquet"][1]


def test_two_fields_of_a_struct_of_one_name_are_ambiguous(tmp_path):
    twins = pa.StructArray.from_arrays([pa.array([b"1"]), pa.array([b"2"])], ["b", "b"])
    data = {"t.parquet": parquet(a=twins)}
    refused = refusals(lab_of(tmp_path, data, {"rows": {"columns": {"a.b": "bin"}}}))
    assert refused["t.parquet"][0] == "object.format"


def test_a_field_of_a_struct_may_have_a_dot_in_its_name(tmp_path):
    kind = pa.struct([("b.c", pa.binary()), ("d", pa.binary())])
    data = {"t.parquet": parquet(a=pa.array([{"b.c": b"1", "d": b"2"}], kind), n=[7])}
    columns = {"a.b.c": "bin", "a.d": None}
    lab = lab_of(tmp_path, data, {"rows": {"columns": columns}})
    lab.prepare()
    assert samples(lab) == {"t.parquet/000000000": {"bin": b"1", "json": b'{"n":7}'}}


BAD_TEXT = {"id": "r3", "file_name": "3.bin", "c": "cat", "t": "ok"}


@pytest.mark.parametrize("name", ["id", "c"])
def test_half_a_pair_of_surrogates_in_a_row_is_a_bad_key(tmp_path, name):
    data = {"t.jsonl": lines(BAD_TEXT, {**BAD_TEXT, "id": "r4", name: HALF})}
    lab = lab_of(tmp_path, data, {"rows": {"key": "id"}}, labels={"column": "c"})
    ((key, (code, _)),) = refusals(lab).items()
    assert key in ("t.jsonl/000000001.json", "t.jsonl/r4.json")
    assert code == "config.bad_key"
    lab.prepare(on_bad_key="skip")
    assert list(samples(lab)) == ["t.jsonl/r3"]


@pytest.mark.parametrize("many", [True, False])
@pytest.mark.parametrize("kind", ["jsonl", "coco"])
@pytest.mark.parametrize("name", ["file_name", "c", "t"])
def test_half_a_pair_of_surrogates_in_an_annotation_is_named(tmp_path, name, kind, many):
    rows = [BAD_TEXT, {**BAD_TEXT, "file_name": "4.bin", name: HALF}]
    coco = {"images": [{**row, "id": at} for at, row in enumerate(rows)], "annotations": []}
    data = {"t": lines(*rows) if kind == "jsonl" else json.dumps(coco).encode()}
    options = {"files": "t", "format": kind, "part": None, "columns": {"txt": "t"}, "many": many}
    fields = {"samples": {"annotations": options, "missing": "keep"}, "labels": {"column": "c"}}
    lab = lab_of(tmp_path, {**data, "3.bin": b"3", "4.bin": b"4"}, **fields)
    with pytest.raises(ConfigError) as caught:
        lab.plan()
    assert caught.value.code in ("config.annotations", "config.label")
    assert caught.value.where == ("t, line 2" if kind == "jsonl" else "t, image 1")


@pytest.mark.parametrize("blocks", [1, 4096, 5000])
@pytest.mark.parametrize("follows", [b"", b"\0" * 511 + b"x"])
def test_zeros_may_follow_an_archive_and_nothing_else(tmp_path, blocks, follows):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        member = tarfile.TarInfo("a.txt")
        member.size = 1
        archive.addfile(member, io.BytesIO(b"A"))
    data = target.getvalue() + bytes(512 * blocks) + follows
    lab = lab_of(tmp_path, {"x.tar": data}, {"archives": "expand"})
    if follows:
        assert refusals(lab)["x.tar"][0] == "object.format"
        return
    lab.prepare()
    assert samples(lab) == {"x.tar/a": {"txt": b"A"}}


def test_uuids_are_texts(tmp_path):
    ids = [uuid.UUID(int=at) for at in range(2)]
    column = pa.ExtensionArray.from_storage(
        pa.uuid(), pa.array([each.bytes for each in ids], pa.binary(16))
    )
    inside = pa.StructArray.from_arrays([column], ["u"])
    listed = pa.ListArray.from_arrays([0, 1, 2], column)
    data = {"t.parquet": parquet(id=column, s=inside, l=listed)}
    lab = lab_of(tmp_path, data, {"rows": {"key": "id"}}, labels={"column": "s.u"})
    lab.prepare()
    assert {key: json.loads(parts["json"]) for key, parts in samples(lab).items()} == {
        f"t.parquet/{each}": {"id": str(each), "s": {"u": str(each)}, "l": [str(each)]}
        for each in ids
    }
    assert lab.only().version.classes == tuple(map(str, ids))


def extension(kind: Any, storage: pa.Array) -> pa.Array:
    return pa.ExtensionArray.from_storage(kind, storage)


def test_other_extension_types_are_their_values(tmp_path):
    tensor = pa.fixed_shape_tensor(pa.int32(), (2,))
    data = parquet(
        json=extension(pa.json_(), pa.array(['{"a":1}'])),
        bool=extension(pa.bool8(), pa.array([1], pa.int8())),
        tensor=extension(tensor, pa.array([[1, 2]], pa.list_(pa.int32(), 2))),
        opaque=extension(pa.opaque(pa.int32(), "t", "v"), pa.array([5], pa.int32())),
    )
    lab = lab_of(tmp_path, {"t.parquet": data}, {"rows": {}})
    lab.prepare()
    (parts,) = samples(lab).values()
    expected = {"bool": True, "json": '{"a":1}', "opaque": 5, "tensor": [1, 2]}
    assert json.loads(parts["json"]) == expected


SEPARATED = {
    "semicolons": ("t.csv", b"id;text\na;1\nb;2\n", ";"),
    "decimal commas": ("t.csv", b"id;text,more;x\na;1,5;3\n", ";"),
    "tabs": ("t.csv", b"id\ttext\na\t1\n", "\t"),
    "bars": ("t.csv", b"id|text\na|1\n", "|"),
    "commas": ("t.tsv", b"id,text\na,1\n", ","),
    "a mark": ("t.csv", b"\xef\xbb\xbfid;text\na;1\n", ";"),
}


@pytest.mark.parametrize(("name", "data", "right"), SEPARATED.values(), ids=SEPARATED)
def test_another_delimiter_than_the_configured_one_is_refused(tmp_path, name, data, right):
    lab = lab_of(tmp_path, {name: data}, {"rows": {}})
    code, message = refusals(lab)[name]
    assert code == "object.format"
    assert "source.rows.delimiter" in message
    rows = {"key": "id", "delimiter": right}
    lab = lab_of(tmp_path / "right", {name: data}, {"rows": rows})
    lab.prepare()
    assert f"{name}/a" in samples(lab)
    wrong = "\t" if name.endswith(".tsv") else ","
    lab_of(tmp_path / "wrong", {name: data}, {"rows": {"delimiter": wrong}}).plan()


def test_names_in_quotes_that_no_comma_separates_are_refused_with_the_option(tmp_path):
    data = {"t.csv": b'"id";"text"\n"a";"1"\n'}
    assert "source.rows.delimiter" in refusals(lab_of(tmp_path, data, {"rows": {}}))["t.csv"][1]
    samples = {"annotations": {"files": "t.csv", "key": "id"}}
    with pytest.raises(ConfigError, match=r"samples\.annotations\.delimiter"):
        lab_of(tmp_path / "files", {**data, "a.bin": b"a"}, samples=samples).plan()


@pytest.mark.parametrize("delimiter", [",", ";"])
def test_a_line_that_tells_excel_the_delimiter_names_no_columns(tmp_path, delimiter):
    data = {"t.csv": f"sep={delimiter}\na{delimiter}b\n1{delimiter}2\n".encode()}
    lab = lab_of(tmp_path, data, {"rows": {"delimiter": delimiter}})
    assert "'sep='" in refusals(lab)["t.csv"][1]


@pytest.mark.parametrize(("name", "data", "right"), SEPARATED.values(), ids=SEPARATED)
def test_annotations_have_the_same_delimiters(tmp_path, name, data, right):
    def lab(folder: str, **options: Any) -> Lab:
        annotations = {"files": name, "key": "id", **options}
        fields = {"samples": {"annotations": annotations, "missing": "skip"}}
        return lab_of(tmp_path / folder, {name: data, "a.bin": b"a"}, **fields)

    with larder_error("config.annotations") as caught:
        lab("none").plan()
    assert "samples.annotations.delimiter" in str(caught.value)
    right_lab = lab("right", delimiter=right)
    right_lab.prepare()
    assert json.loads(samples(right_lab)["a"]["json"])["id"] == "a"
    assert right_lab.plan()["status"] == "reused"


def test_the_delimiter_of_annotations_is_of_csv(tmp_path):
    with pytest.raises(ValueError, match="delimiter"):
        lab_of(
            tmp_path,
            {},
            samples={"annotations": {"files": "a", "format": "jsonl", "delimiter": ";"}},
        ).settings()


@pytest.mark.parametrize(
    ("data", "row"),
    [
        (b",id,text\n0,a,1\n", {"": "0", "id": "a", "text": "1"}),
        (b"id,text,\na,1,\n", {"": "", "id": "a", "text": "1"}),
        (b"\n\r\nid\na\n", {"id": "a"}),
    ],
    ids=["the index of pandas", "commas at the ends", "blank lines first"],
)
def test_a_header_as_programs_write_it(tmp_path, data, row):
    lab = lab_of(tmp_path, {"t.csv": data}, {"rows": {"key": "id"}})
    lab.prepare()
    (parts,) = samples(lab).values()
    assert json.loads(parts["json"]) == row


@pytest.mark.parametrize(
    "name",
    [
        "b.jsonl.gz",
        "b.ndjson.zst",
        "b.CSV.GZ",
        "b.tsv.xz",
        "b.txt.bz2",
        "b.parquet.gz",
        "b.csv.zip",
    ],
)
def test_compressed_tables_are_refused_by_name(tmp_path, name):
    objects = {"a.jsonl": lines({"x": 1}), name: gzip.compress(lines({"x": 2}))}
    lab = lab_of(tmp_path, objects, {"rows": {}})
    assert refusals(lab)[name][0] == "config.bad_key"
    lab.prepare(on_bad_key="skip")
    assert list(samples(lab)) == ["a.jsonl/000000000"]


def test_compressed_files_that_are_no_tables_are_objects(tmp_path):
    objects = {"a.jsonl": lines({"x": 1}), "b.csv.gz": b"b", "c.json.gz": b"c"}
    lab = lab_of(tmp_path, objects, {"rows": {"format": "jsonl"}})
    lab.prepare()
    assert list(samples(lab)) == ["a.jsonl/000000000", "b", "c"]


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
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for name in ("a.txt", "./._n.tar", "._a.txt"):
            member = tarfile.TarInfo(name)
            member.size = 1
            archive.addfile(member, io.BytesIO(b"A"))
    lab = lab_of(tmp_path, {"x.tar": target.getvalue()}, {"archives": "expand"})
    assert set(refusals(lab)) == {"x.tar/._n.tar", "x.tar/._a.txt"}
    lab.prepare(on_bad_key="skip")
    assert list(samples(lab)) == ["x.tar/a"]
