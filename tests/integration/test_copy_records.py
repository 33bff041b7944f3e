"""The record of a copy names and deletes only files that a copy writes."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from copy_lab import PLACE, directories, lab_of
from pipeline_lab import directory_lab, images, opened, png

from larder.copy.record import read_record
from larder.errors import LarderError
from larder.manifest.sealed import StoredFile, seal
from tests.support.errors import larder_error

OBJECTS = {f"a/{number}.bin": bytes([number]) for number in range(3)}


@pytest.mark.parametrize("kind", ["buckets", "directories"])
@pytest.mark.parametrize("role", ["manifest", "failures"])
def test_a_record_that_names_others_files_is_refused(kind, role, tmp_path):
    with lab_of(kind, tmp_path, OBJECTS) as lab:
        lab.copy()
        with opened(lab.storage) as store:
            record = read_record(store, PLACE)
            other = replace(record.manifest, path="a/1.bin")
            store.put(PLACE.document, seal(replace(record, **{role: other})))
        lab.add({"b.bin": b"new"})
        with larder_error("damage.manifest"):
            lab.copy()
        assert lab.there() == OBJECTS


def test_a_record_of_a_mirror_deletes_no_version(tmp_path):
    lab = directory_lab(tmp_path, images("ab", 1), mirror=True)
    version = lab.prepare()["version"]
    document = lab.folder / "work/mirror/copy.json"
    with lab.opened_root() as root:
        place = replace(PLACE, objects="mirror/", files="work/mirror/")
        record = read_record(root, place)
        file = StoredFile(f"versions/{version}/version.json", 1, "0" * 64, "failures")
        document.write_bytes(seal(replace(record, failures=file)))
    lab.add({"a/9.png": png(9)})
    with larder_error("damage.manifest"):
        lab.prepare()
    assert lab.check().keys() == {version}


@pytest.mark.parametrize("name", [".DS_Store", ".nfs000000000001", "a-b-c-d.parquet"])
def test_other_files_among_the_receipts_are_ignored(name, tmp_path):
    with directories(tmp_path, OBJECTS) as lab:
        lab.copy()
        with opened(lab.storage) as store:
            record = read_record(store, PLACE)
        stray = Path(lab.storage, replace(PLACE, origin=record.source).receipts, name)
        stray.parent.mkdir(parents=True, exist_ok=True)
        stray.touch()
        lab.add({"b.bin": b"new"})
        assert lab.copy()["copied"]["count"] == 1
        assert stray.exists()


def test_a_link_that_replaces_a_folder_is_refused_by_the_same_process(tmp_path):
    lab = directory_lab(tmp_path, images("ab", 1))
    lab.prepare()
    victim = tmp_path / "victim"
    shutil.move(lab.folder / "tags", victim)
    (lab.folder / "tags").symlink_to(victim)
    before = (victim / "latest.json").read_bytes()
    lab.add({"a/9.png": png(9)})
    with pytest.raises(LarderError, match="a link leads out"):
        lab.prepare()
    assert (victim / "latest.json").read_bytes() == before
