"""Loaders keep the version that they read, by the lease of its config."""

import os
import shutil
from dataclasses import replace

import pytest
from catalog_lab import cleaned, drop_all, grown, leased
from pipeline_lab import directory_lab, images, png, write
from required import at_push

import larder
from larder.manifest.sealed import seal
from larder.pipeline.configs import emit
from larder.readers import access, sources
from larder.versions import layout
from larder.versions.leases import Tombstone
from tests.support.errors import larder_error
from tests.support.stores import FaultyStore, denied

DAY_SECONDS = 24 * 3600


@pytest.fixture(scope="module")
def emitted(tmp_path_factory):
    lab = directory_lab(tmp_path_factory.mktemp("emitted"), images("ab", 6), cache=None)
    first, _ = grown(lab, 2)
    emit(lab.settings(), first)
    return lab, first


@pytest.fixture
def trained(emitted, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "EVERY_SECONDS", 0.0)
    lab, first = emitted
    lab = replace(lab, storage=shutil.copytree(lab.storage, tmp_path / "local"))
    return lab, first, lab.folder / f"leases/config-c-{first}.json"


def train(lab, version, **options):
    loader = larder.open(f"{lab.folder}@{version}").loader("train", batch_size=2, **options)
    assert len(list(loader)) >= 6


def age(path, days):
    written = path.stat().st_mtime - days * DAY_SECONDS
    os.utime(path, (written, written))


@pytest.mark.parametrize("workers", [0, *at_push(1)])
def test_training_of_forty_days_keeps_its_version(trained, workers):
    lab, first, path = trained
    data = path.read_bytes()
    for _ in range(2):
        age(path, 20)
        train(lab, first, workers=workers)
        assert cleaned(lab)["kept"][first].startswith(f"lease {path.stem}; ")
    assert path.read_bytes() == data
    age(path, 31)
    assert first not in cleaned(lab)["kept"], "training has ended"


def test_a_young_lease_is_left_and_one_that_was_dropped_too(trained):
    lab, first, path = trained
    before = path.stat().st_mtime_ns
    train(lab, first)
    assert path.stat().st_mtime_ns == before
    age(path, 2)
    old = path.stat().st_mtime_ns
    train(lab, first, rank=1, world=2)
    assert path.stat().st_mtime_ns == old, "one rank does it"
    drop_all(lab)
    train(lab, first)
    assert leased(lab)["leases"] == []


def test_training_goes_on_where_it_may_not_write(trained, monkeypatch):
    lab, first, path = trained
    age(path, 20)
    before, opened = path.stat().st_mtime_ns, access.open_store

    def open_denied(*arguments, **options):
        store = FaultyStore(opened(*arguments, **options))
        store.add("put", denied(), times=None)
        return store

    monkeypatch.setattr(access, "open_store", open_denied)
    train(lab, first)
    assert path.stat().st_mtime_ns == before


def test_a_version_that_a_clean_deletes_gets_no_lease_again(trained):
    lab, first, path = trained
    age(path, 31)
    tombstone = seal(Tombstone((layout.version_prefix(first)[:-1],), "somebody"))
    write(lab.folder, {layout.tombstone_key("0" * 16): tombstone})
    train(lab, first)
    assert not path.exists()


USES = {
    "loader": lambda data, _: list(data.loader("train", batch_size=2, shuffle=True)),
    "samples": lambda data, _: data.samples_of("train")[0],
    "labels": lambda data, _: data.labels("train"),
    "download": lambda data, folder: data.download(folder),
    "copy": lambda data, folder: data.copy_to(folder),
}


@pytest.fixture(scope="module", params=[None, *at_push({"records": "encoded"})])
def opened(request, tmp_path_factory):
    """The first of two versions without a common segment, opened for each use, then cleaned."""
    folder, growth = tmp_path_factory.mktemp("opened"), {"mode": "rebuild"}
    lab = directory_lab(folder, images("ab", 4), cache=request.param, growth=growth)
    first = lab.prepare()["version"]
    data = {use: larder.open(f"{lab.folder}@{first}") for use in (*USES, "read")}
    shards = data["read"].samples_of("train")
    assert len(shards[:]) == 8
    lab.add({"a/new.png": png(50)})
    lab.prepare()
    drop_all(lab)
    assert cleaned(lab)["deleted"]["count"]
    return data, shards


@pytest.mark.parametrize("use", USES)
def test_reading_says_that_the_version_was_cleaned(opened, use, tmp_path):
    data, _ = opened
    with larder_error("version.cleaned"):
        USES[use](data[use], tmp_path)


def test_so_does_reading_on(opened):
    _, shards = opened
    with larder_error("version.cleaned"):
        shards[:]


def test_what_is_lost_of_a_version_that_is_there_is_damage(tmp_path):
    lab = directory_lab(tmp_path, images("ab", 4), cache=None)
    version = lab.prepare()["version"]
    data = larder.open(f"{lab.folder}@{version}")
    (segment,) = (lab.folder / layout.SEGMENTS_PREFIX).iterdir()
    (segment / "segment.json").unlink()
    with larder_error("damage.size"):
        data.labels("train")
