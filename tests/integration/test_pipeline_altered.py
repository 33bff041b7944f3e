"""Finished work that something altered, at the same size, before the next run continues."""

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline_lab import (
    DECODED,
    Lab,
    directory_lab,
    flip,
    images,
    objects_of,
    png,
    reach,
    write,
)
from required import at_night

from larder.errors import DamageError
from larder.manifest.manifest_files import write_manifest
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import KeyStop, Recorder, Stopped, StoppingStore, keys_of

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {
    **DECODED,
    "cluster": {"runner": {"workers": 2, "batch_bytes": 12_000}},
}
SHARD = "shards/train/d-train-000001.tar"
CACHE = "train-*.mdb"
ROLES = ("rows", "sources")


def cut_off(lab: Lab, key: str = "segment.json") -> None:
    """A run that is killed when it is about to write a key that ends so."""
    assert lab.stopped(KeyStop(key)) is None


def replaced_with_its_time(path: Path) -> None:
    """As a tool does that copies files with their times: only the inode tells."""
    before = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    other = path.with_name(".other")
    other.write_bytes(data)
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(path)


@pytest.mark.parametrize("alter", [flip, replaced_with_its_time])
@pytest.mark.parametrize("part", [SHARD, CACHE])
def test_altered_files_in_a_directory_are_made_again(tmp_path, part, alter):
    expected = directory_lab(tmp_path / "1", **FIELDS).prepare()
    lab = directory_lab(tmp_path / "2", **FIELDS)
    cut_off(lab)
    path = lab.file(part)
    alter(path)
    document, calls = lab.recorded()
    assert document["digest"] == expected["digest"]
    lab.check()
    assert document["shards"]["reused"] == expected["shards"]["count"] - (part == SHARD)
    made = [key for key in calls.keys("writer", "upload") if key.endswith((".tar", ".mdb"))]
    assert [key.rpartition("/")[2] for key in made] == [path.name], "and nothing else"


PARTS = [SHARD, "*train-000001.idx", CACHE, *(f"index/{role}-*" for role in ROLES)]


@pytest.mark.parametrize("alter", [flip, replaced_with_its_time])
@pytest.mark.parametrize("part", at_night(*PARTS, but=(SHARD, CACHE, "index/rows-*")))
def test_altered_files_of_a_complete_segment_are_not_published(tmp_path, part, alter):
    """The run was killed between segment.json and version.json."""
    lab = directory_lab(tmp_path, **FIELDS)
    cut_off(lab, "version.json")
    path = lab.file(part)
    alter(path)
    if part != CACHE:
        with pytest.raises(DamageError) as caught:
            lab.prepare()
        assert caught.value.where == f"file://{path}"
        segment = lab.file("segment.json")
        assert segment.relative_to(lab.folder).as_posix() in caught.value.hint
        segment.unlink()
    document = lab.prepare()
    lab.check()
    expected = directory_lab(tmp_path / "2", **FIELDS).prepare()
    assert document["digest"] == expected["digest"]


def test_what_is_older_than_its_segment_is_not_read_again(tmp_path):
    lab = directory_lab(tmp_path, **FIELDS)
    cut_off(lab, "version.json")
    _, calls = lab.recorded()
    read = calls.keys("open", "get")
    assert not [key for key in read if key.endswith((".tar", ".idx", ".mdb"))]


def test_caches_of_a_published_version_are_not_read_again(tmp_path):
    """As after its storage was copied, which changes the times of all files."""
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare()
    for path in lab.files("*.mdb"):
        os.utime(path)
    write(str(lab.source), {"a/zz.png": png(7)})
    _, calls = lab.recorded()
    assert not [key for key in calls.keys("open", "get") if key.endswith(".mdb")]


def test_a_receipt_of_other_objects_is_refused_and_then_made_again(tmp_path):
    """tests/unit/segments/test_receipt_check.py has every alteration."""
    lab = directory_lab(tmp_path, **FIELDS)
    cut_off(lab)
    path = min(lab.folder.glob("segments/*/work/shards/train/*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    rows[0]["parts"][-1]["etag"] = "other"
    write_manifest(path, table.schema, pa.Table.from_pylist(rows, table.schema).to_batches())
    with larder_error("damage.manifest") as caught:
        lab.prepare()
    assert "the receipt is not that of its shard" in caught.value.message
    assert caught.value.where.endswith(str(path))
    assert not lab.files("version.json")
    path.unlink()
    lab.prepare()
    assert objects_of(lab.only()) == images()


def test_touched_files_are_read_once_and_kept(tmp_path):
    lab = directory_lab(tmp_path, **FIELDS)
    cut_off(lab)
    made = [path for end in ("tar", "mdb") for path in lab.files(f"*.{end}")]
    for path in made:
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))
    touched = {path.relative_to(lab.folder).as_posix() for path in made}
    stop, calls = KeyStop("segment.json"), Recorder()
    with between(lambda store: calls(StoppingStore(store, stop))), pytest.raises(Stopped):
        lab.prepare()
    read = [key for key in calls.keys("open", "get") if key in touched]
    assert sorted(read) == sorted(touched), "each once"
    assert not touched & set(calls.keys("writer", "upload"))
    document, calls = lab.recorded()
    assert document["shards"]["reused"] == sum(key.endswith(".tar") for key in touched)
    assert not touched & set(calls.keys("open", "get", "writer", "upload")), "known by now"
    lab.check()


@pytest.mark.parametrize("end", ["-train-000001.tar", *at_night(".mdb")])
def test_altered_files_in_a_bucket_are_made_again(tmp_path, server, end):
    whole = directory_lab(tmp_path, **FIELDS)
    expected = whole.prepare()
    server.create_bucket("altered")
    storage = {"url": f"s3://altered/{uuid.uuid4().hex[:12]}", **reach(server)}
    lab = replace(whole, storage=storage)
    cut_off(lab)
    with lab.opened_root() as root:
        key = next(key for key in keys_of(root, "segments/") if key.endswith(end))
        data = bytearray(root.get(key))
        data[len(data) // 2] ^= 1
        root.put(key, data)
    document = lab.prepare()
    assert document["digest"] == expected["digest"]
    assert document["shards"]["reused"] == expected["shards"]["count"] - (end != ".mdb")
    lab.check()
