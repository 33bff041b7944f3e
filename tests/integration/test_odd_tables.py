"""Tables and archives as other programs leave them: they are read whole, or refused by name."""

import io
import json
import tarfile
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from archives_lab import samples
from pipeline_lab import Lab, directory_lab

from larder.jobs.results import RefusedError, RunError

PLAIN: dict[str, Any] = {"labels": None, "cache": None, "validate": "none"}
IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
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
