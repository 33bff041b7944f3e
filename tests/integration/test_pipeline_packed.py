"""Runs that pack samples again: what they read and copy, and what they know of bad samples."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pipeline_lab import Lab, directory_lab, images, png, write

from larder.errors import DamageError
from larder.store.base import Store
from larder.versions.publish import read_segment
from tests.support.checker import Published
from tests.support.runs import between
from tests.support.stores import RecordedCall, RecordingStore

pytestmark = pytest.mark.exhaustive

OBJECTS = images("abc", 20)
FIELDS: dict[str, Any] = {"cache": None, "splits": {"train": ["a/**", "b/**"], "test": "c/**"}}


class Recorded:
    """All stores of a run."""

    def __init__(self) -> None:
        self.stores: list[RecordingStore] = []

    def __call__(self, store: Store) -> Store:
        self.stores.append(RecordingStore(store))
        return self.stores[-1]

    def reads(self, lab: Lab) -> set[str]:
        """The objects that were read from the source or the mirror."""
        mirror = f"{lab.root}mirror/"
        found = set()
        for store in self.stores:
            for call in store.calls:
                if call.method in ("get", "open"):
                    url = f"{store.url}{call.key}"
                    for place in (f"file://{lab.source}/", mirror):
                        if url.startswith(place):
                            found.add(url.removeprefix(place))
        return found

    def calls(self, method: str) -> list[RecordedCall]:
        return [call for store in self.stores for call in store.calls if call.method == method]


def latest(lab: Lab, version: str) -> Published:
    return lab.check()[version]


def contents(published: Published) -> dict[str, bytes]:
    """The objects of all samples, by key; all are images or their descriptions."""
    return {
        f"{sample.key}.{ext}": data
        for samples in published.samples.values()
        for sample in samples
        for ext, data in sample.parts.items()
        if ext != "cls"
    }


def prepared(lab: Lab, **fields: Any) -> tuple[dict[str, Any], Recorded]:
    recorded = Recorded()
    with between(recorded):
        return lab.prepare(**fields), recorded


def remove(lab: Lab, *keys: str) -> None:
    for key in keys:
        (Path(str(lab.source)) / key).unlink()


@pytest.mark.parametrize("way_out", ["restore", "start over"])
def test_a_damaged_old_shard_ends_the_run(tmp_path: Path, way_out: str) -> None:
    lab = directory_lab(tmp_path, OBJECTS, **FIELDS)
    first = lab.prepare(on_bad_sample="skip")
    folder = Path(lab.root.removeprefix("file://"))
    shards = folder.glob("segments/*/shards/train/*.tar")
    shard = next(path for path in shards if OBJECTS["a/10.png"] in path.read_bytes())
    data = bytearray(shard.read_bytes())
    neighbours = [key for key in ("a/09.png", "a/11.png") if OBJECTS[key] in data]
    at = data.index(OBJECTS["a/10.png"])
    data[at] ^= 1  # no image any more
    shard.write_bytes(data)
    remove(lab, neighbours[0])
    with pytest.raises(DamageError) as caught:
        lab.prepare(on_bad_sample="skip")
    assert (caught.value.code, caught.value.exit_status) == ("damage.record", 4)
    assert caught.value.where.endswith(f"{shard.name}: a/10.png")
    assert first["version"] in (folder / "tags/latest.json").read_text()
    if way_out == "restore":
        data[at] ^= 1
        shard.write_bytes(data)
    else:
        assert "delete the dataset's tags/latest.json" in str(caught.value)
        (folder / "tags/latest.json").unlink()
    grown = lab.prepare(on_bad_sample="skip")
    if way_out != "restore":  # nothing that is damaged is left to check
        shutil.rmtree(folder / "versions" / first["version"])
        shutil.rmtree(shard.parents[2])
    assert len(contents(latest(lab, grown["version"]))) == len(OBJECTS) - 1


BAD = {"a/05x.png": b"not an image", "b/zz.png": b"", "b/zz.seg.png": b"nor this"}


def skipped_rows(lab: Lab, segment: str) -> list[dict[str, Any]]:
    with lab.opened_root() as root:
        document = read_segment(root, segment)
        assert document is not None
        file = next(file for file in document.files if file.role == "skipped")
        assert document.skipped == 2
        path = Path(lab.root.removeprefix("file://")) / file.path
        rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
        return rows


@pytest.mark.parametrize("mirror", [True, False])
def test_bad_samples_are_recorded_and_not_tried_again(tmp_path: Path, mirror: bool) -> None:
    fields = {**FIELDS, "on_bad_sample": "skip", "mirror": mirror, "validate": "header"}
    lab = directory_lab(tmp_path, OBJECTS | BAD, **fields)
    first, recorded = prepared(lab)
    assert first["skipped"] == 2
    assert recorded.reads(lab) >= BAD.keys()
    (segment,) = latest(lab, first["version"]).version.segments
    rows = skipped_rows(lab, segment.id)
    assert [(row["split"], row["key"], row["check"]) for row in rows] == [
        ("train", "a/05x", "header"),
        ("train", "b/zz", "header"),
    ]
    parts = {part["key"]: part["size_bytes"] for row in rows for part in row["parts"]}
    assert parts == {key: len(data) for key, data in BAD.items()}
    assert [row["message"].split(":")[0] for row in rows] == ["a/05x.png", "b/zz.png"]

    new = {"c/zz.png": png(7)}
    write(str(lab.source), new)
    grown, recorded = prepared(lab)
    assert grown["skipped"] == 2
    assert recorded.reads(lab) == new.keys()

    # All is packed again: from the shards, and what is bad is known to be.
    shape = {"shards": {"bytes": 9_000}}
    again, recorded = prepared(lab, **shape)
    assert again["skipped"] == 2
    assert recorded.reads(lab) == set()
    (segment,) = latest(lab, again["version"]).version.segments
    assert skipped_rows(lab, segment.id) == rows
    fresh = directory_lab(tmp_path / "fresh", OBJECTS | BAD | new, **{**fields, **shape}).prepare()
    assert again["digest"] == fresh["digest"]

    # A stricter check tries everything again.
    stricter, recorded = prepared(lab, validate="decode", **shape)
    assert stricter["skipped"] == 2
    assert recorded.reads(lab) >= BAD.keys()
