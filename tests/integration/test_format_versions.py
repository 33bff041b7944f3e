"""A release that writes shards in another form: what stays, and what is made again."""

import gc
from collections.abc import Sequence
from typing import Any

import pytest
import webdataset as wds
from pipeline_lab import DOCUMENT, Lab, contents, directory_lab, images, png, shard_names
from verify_lab import verified

import larder
from larder.pipeline import build
from larder.pipeline.run_report import run_lines
from larder.segments.shard import shard_batches
from larder.shards.formats import FORMATS, tar
from larder.shards.formats.parquet import ParquetFormat
from larder.shards.formats.webdataset import TarWriter, WebDataset
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import ShardPlan
from larder.versions import identity
from larder.versions.publish import read_segment
from tests.support.errors import larder_error

pytestmark = pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset's own

FIELDS: dict[str, Any] = {"validate": "header", "cache": {"records": "encoded"}}
NEW = {"b/zz.png": png(5)}


class _LongerTar(WebDataset):
    """Tar archives that end in three empty blocks since version 2."""

    version = 2

    @property
    def empty_bytes(self) -> int:
        return len(tar.END) + tar.BLOCK_BYTES * (self.version > 1)

    def writer(self, outputs: Sequence[HashedOutput], plan: ShardPlan) -> TarWriter:
        return _LongerTarWriter(*outputs)


class _LongerTarWriter(TarWriter):
    def finish(self) -> Any:
        self._put(bytes(tar.BLOCK_BYTES))
        return super().finish()


class _FixedTar(_LongerTar):
    """Shards of version 1 have a fault."""

    oldest_kept = 2


class _NewerParquet(ParquetFormat):
    library = "pyarrow 9999.0.0"


def forms(lab: Lab) -> list[tuple[int, str]]:
    with lab.opened_root() as root:
        found = [read_segment(root, use.id) for use in lab.newest().version.segments]
    return [(each.shape.format_version, each.shape.library) for each in found if each]


def growth(lab: Lab) -> DOCUMENT:
    planned: DOCUMENT = lab.plan()["growth"]
    return planned


def assert_readable(lab: Lab) -> None:
    published, data = lab.newest(), larder.open(f"{lab.storage}/larder/d")
    keys = [sample.key for sample in published.samples["train"]]
    assert [sample.key for sample in data.samples("train")] == keys
    with data.cache("train", verify=True) as cache:
        assert sorted(record["key"] for record in cache) == sorted(keys)
    read = wds.WebDataset(data.shards("train"), shardshuffle=False)
    assert [sample["__key__"] for sample in read] == keys
    gc.collect()  # while the warning is ignored
    assert verified(lab)["status"] == "intact"


def test_a_new_form_is_for_new_segments_and_every_reader_reads_both(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, **FIELDS)
    first = lab.prepare()
    monkeypatch.setitem(FORMATS, "webdataset", _LongerTar)
    reused = lab.prepare()
    assert (reused["status"], reused["version"]) == ("reused", first["version"])
    assert f"  reason   {reused['reason']}" in run_lines(reused)
    lab.add(NEW)
    plan = growth(lab)
    assert (plan["decision"], plan["packed"]["count"], plan["read"]["count"]) == ("grow", 0, 1)
    grown = lab.prepare()
    assert grown["reason"] == plan["reason"]
    assert "earlier version of webdataset: 1 segment" in grown["reason"]
    assert forms(lab) == [(1, ""), (2, "")]
    assert_readable(lab)

    assert lab.compact()["status"] == "built"
    assert forms(lab) == [(2, "")]
    assert_readable(lab)
    fresh = Lab(lab.source, str(tmp_path / "fresh"), tmp_path / "out", lab.fields)
    fresh.prepare()
    assert shard_names(fresh.only()) == shard_names(lab.newest())
    assert lab.compact()["status"] == "reused"


def test_a_single_segment_of_an_earlier_form_is_compacted(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare()
    assert lab.compact()["status"] == "reused"
    monkeypatch.setitem(FORMATS, "webdataset", _LongerTar)
    assert lab.compact()["reason"] == "larder compact"
    assert forms(lab) == [(2, "")]


def test_a_fault_in_a_form_replaces_its_segments_alone_from_their_objects(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, NEW, **FIELDS)
    lab.prepare()
    monkeypatch.setitem(FORMATS, "webdataset", _LongerTar)
    lab.add(images())
    lab.prepare()
    before, (_, sound) = contents(lab.newest()), lab.newest().version.segments
    monkeypatch.setitem(FORMATS, "webdataset", _FixedTar)
    plan = growth(lab)
    assert (plan["decision"], plan["packed"]["count"], plan["read"]["count"]) == ("grow", 0, 1)
    fixed = lab.prepare()
    assert (fixed["status"], fixed["segments"]["new"]) == ("built", 1)
    assert "before version 2 of the format have a fault" in fixed["reason"]
    assert forms(lab) == [(2, ""), (2, "")]
    assert lab.newest().version.segments[0] == sound
    assert contents(lab.newest()) == before
    assert_readable(lab)
    assert lab.prepare()["status"] == "reused"


@pytest.mark.push
def test_a_fault_in_most_shards_makes_one_segment_also_of_bad_samples(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, images() | {"a/zz.png": b"bad"}, on_bad_sample="skip", **FIELDS)
    lab.prepare()
    monkeypatch.setitem(FORMATS, "webdataset", _FixedTar)
    plan = growth(lab)
    assert (plan["decision"], plan["packed"]["count"]) == ("fresh", 0)
    fixed = lab.prepare()
    assert (fixed["status"], fixed["skipped"], forms(lab)) == ("built", 1, [(2, "")])
    assert "have a fault" in fixed["reason"]


@pytest.mark.push
def test_sound_shards_stay_when_a_release_fixes_a_fault(tmp_path, monkeypatch):
    """The run compares all samples once, and finds nothing to do."""
    monkeypatch.setitem(FORMATS, "webdataset", _LongerTar)
    lab = directory_lab(tmp_path, **FIELDS)
    first = lab.prepare()
    monkeypatch.setitem(FORMATS, "webdataset", _FixedTar)
    again = [lab.prepare() for _ in range(2)]
    assert {each["version"] for each in again} == {first["version"]}
    assert [each["status"] for each in again] == ["reused", "reused"]
    assert [each["reason"].startswith("neither") for each in again] == [False, True]


def test_new_rules_of_grouping_compare_all_samples(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, **FIELDS)
    first = lab.prepare()
    monkeypatch.setattr(identity, "GROUPING_VERSION", 2)
    assert lab.plan()["status"] == "planned"
    again = lab.prepare()
    assert (again["status"], again["version"]) == ("reused", first["version"])
    assert again["reason"] == "no sample has changed"
    assert lab.plan()["status"] == "reused"


def test_a_new_version_of_the_same_segments_has_another_reason(tmp_path):
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare()
    planned, built = lab.plan(cache=None), lab.prepare(cache=None)
    assert (built["status"], built["segments"]["new"]) == ("built", 0)
    expected = "no sample has changed; classes, splits, caches or bad samples differ"
    assert built["reason"] == planned["growth"]["reason"] == expected


@pytest.mark.push
def test_a_new_pyarrow_is_for_new_segments_also_in_a_compaction(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, shards={"format": "parquet", "bytes": 6_000}, **FIELDS)
    lab.prepare()
    monkeypatch.setitem(FORMATS, "parquet", _NewerParquet)
    assert lab.prepare()["status"] == lab.compact()["status"] == "reused"
    lab.add(NEW)
    lab.prepare()
    assert forms(lab) == [(1, ParquetFormat.library), (1, _NewerParquet.library)]
    assert verified(lab)["status"] == "intact"


def test_a_batch_on_a_machine_with_another_pyarrow_writes_no_shard(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, shards={"format": "parquet"}, **FIELDS)

    def then_elsewhere(*args):
        batches = shard_batches(*args)
        monkeypatch.setitem(FORMATS, "parquet", _NewerParquet)
        return batches

    monkeypatch.setattr(build, "shard_batches", then_elsewhere)
    with larder_error("run.failed"):
        lab.prepare()
    assert not lab.files("d-train-*")


@pytest.mark.push
def test_a_repair_refuses_to_write_with_another_pyarrow(tmp_path, monkeypatch):
    lab = directory_lab(tmp_path, **{**FIELDS, "cache": None, "shards": {"format": "parquet"}})
    lab.prepare()
    path = lab.folder / next(iter(lab.only().shards))
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    monkeypatch.setitem(FORMATS, "parquet", _NewerParquet)
    assert verified(lab, repair=True)["status"] == "damaged"
    monkeypatch.undo()
    assert verified(lab, repair=True)["status"] == "repaired"
    assert path.read_bytes() == data
