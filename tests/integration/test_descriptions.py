"""A version as Croissant metadata, which MLCommons' own library reads, and as plain JSON."""

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, objects_of, png, reach, write
from required import read_by_others

from tests.support.checker import Published
from tests.support.errors import larder_error
from tests.support.servers import moto_s3

SPLITS = {"train": ["a/**", "b/**"], "hold-out": "c/**"}


def described(lab: Lab, kind: str, **more: Any) -> dict[str, Any]:
    (path,) = lab.prepare(cluster={"consumer": {"kind": kind}}, **more)["configs"]
    document: dict[str, Any] = json.loads(Path(path).read_text())
    return document


def grown(folder: Path, **fields: Any) -> tuple[Lab, Published]:
    """A version of two segments, in which a sample of the first is left out."""
    fields = {"splits": SPLITS, "shards": {"bytes": 9_000}, "growth": {}, **fields}
    lab = directory_lab(folder, images("abc", each=8), **fields)
    lab.prepare()
    Path(str(lab.source), "a/03.png").unlink()
    write(str(lab.source), {"a/a space 'é'.png": png(5)})
    lab.prepare()
    return lab, lab.newest()


def test_json_names_every_file_with_its_digest(tmp_path):
    lab, published = grown(tmp_path, cache={"records": "encoded"})
    document = described(lab, "json")
    assert document["version"] == published.version.id
    assert document["digest"] == published.version.digest
    assert document["classes"] == ["a", "b", "c"]
    found: dict[str, str] = {}
    for name, split in document["splits"].items():
        assert split["samples"] == len(published.samples[name])
        for file in split["files"]:
            data = Path(file["url"]).read_bytes()
            assert (len(data), hashlib.sha256(data).hexdigest()) == (file["bytes"], file["sha256"])
            found[str(Path(file["url"]).relative_to(lab.folder))] = file["sha256"]
    assert found == published.shards
    assert all(Path(path).is_file() for paths in document["cache"].values() for path in paths)


READ = """
import json, logging, sys
logging.disable(logging.WARNING)
import mlcroissant

def read(path):
    dataset = mlcroissant.Dataset(path)
    sets = [each.id for each in dataset.metadata.record_sets]
    records = {name: list(dataset.records(name)) for name in sets if name != "classes"}
    return {
        "errors": list(dataset.metadata.ctx.issues.errors),
        "classes": [
            record["classes/name"]
            for name in sets if name == "classes" for record in dataset.records(name)
        ],
        "files": len(dataset.metadata.distribution),
        "parts": {
            record[f"{name}/path"].decode(): record[f"{name}/content"].hex()
            for name in records for record in records[name]
        },
    }

def refused(path):
    try:
        mlcroissant.Dataset(path)
    except mlcroissant.ValidationError:
        return True

given = json.load(sys.stdin)
print(json.dumps([*map(read, given["right"]), *map(refused, given["wrong"])]))
"""


@pytest.mark.push
def test_croissant_is_read_by_mlcommons(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    lab, published = grown(tmp_path / "tar")
    table, _ = grown(tmp_path / "table", shards={"format": "parquet"})
    documents = [described(lab, "croissant"), described(table, "croissant")]
    broken = json.loads(json.dumps(documents[0]))
    del broken["distribution"][0]["sha256"]
    paths = []
    keys = ("top.txt", "a/.b/c.x", "a.d/e.f", "f.tar.gz", "é [x]*?.y", "deep/er/x.y")
    texts = {key: key.encode() for key in keys}
    lab = directory_lab(tmp_path / "keys", texts, labels=None, validate="none", cache=None)
    documents.append(described(lab, "croissant"))
    for number, document in enumerate([*documents, broken]):
        paths.append(tmp_path / f"{number}.json")
        paths[-1].write_text(json.dumps(document))
    right, wrong = list(map(str, paths[:3])), list(map(str, paths[3:]))
    tar, parquet, odd, refused = read_by_others(READ, {"right": right, "wrong": wrong})
    assert refused
    assert tar["errors"] == parquet["errors"] == []
    assert tar["classes"] == parquet["classes"] == ["a", "b", "c"]
    parts = {path: bytes.fromhex(data) for path, data in tar["parts"].items()}
    assert {path for path in parts if not path.endswith(".cls")} == set(objects_of(published))
    assert {path: parts[path] for path in objects_of(published)} == objects_of(published)
    assert parquet["files"] == len(documents[1]["distribution"])
    assert sorted(bytes.fromhex(data).decode() for data in odd["parts"].values()) == sorted(keys)


RUN = """
import json, logging, os, sys
logging.disable(logging.WARNING)
given = json.load(sys.stdin)
os.chdir(given["folder"])
exec(given["example"] + "    parts[path.decode()] = content.hex()", context := {"parts": {}})
print(json.dumps(context["parts"]))
"""


PUBLIC = {
    "Version": "2012-10-17",
    "Statement": [
        {
            "Effect": "Allow",
            "Principal": "*",
            "Action": "s3:GetObject",
            "Resource": "arn:aws:s3:::team/*",
        }
    ],
}


@pytest.mark.push
def test_the_example_of_the_page_reads_a_bucket_too(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs/how-to/croissant.md").read_text()
    (example,) = re.findall(r"^```python\n(import mlcroissant.*?)^```", page, re.DOTALL | re.M)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write(tmp_path / "source", images("abc", each=4))
    folder = tmp_path / "out/croissant/digits"
    with moto_s3() as server:
        server.create_bucket("team")
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        storage = {"url": "s3://team/with space", **reach(server)}
        fields = {"splits": SPLITS, "cluster": {"consumer": {"kind": "croissant"}}}
        lab = Lab(str(tmp_path / "source"), storage, folder, fields)
        lab.prepare()
        server.client().put_bucket_policy(Bucket="team", Policy=json.dumps(PUBLIC))
        parts = read_by_others(RUN, {"folder": str(tmp_path), "example": example})
        objects = {key: data for key, data in objects_of(lab.newest()).items() if key[0] in "ab"}
    assert {path: bytes.fromhex(parts[path]) for path in objects} == objects


def test_omitted_samples_are_not_described(tmp_path):
    lab, _ = grown(tmp_path, growth={"removals": "omit"})
    with larder_error("config.invalid_value") as caught:
        described(lab, "croissant")
    assert "larder compact" in caught.value.message
    assert described(lab, "json")["splits"]["train"]["files"] == []
