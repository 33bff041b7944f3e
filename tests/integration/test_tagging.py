"""Tags that users move: back, pinned, deleted, and at the same time as others do."""

import json
import shutil
from dataclasses import replace

import pytest
from catalog_lab import tagged
from pipeline_lab import directory_lab, images, memory_lab, png

from larder.catalog.tagging import tag_lines
from larder.manifest.sealed import seal
from larder.pipeline.configs import emit
from larder.versions.leases import Tombstone, read_leases
from tests.support.errors import larder_error
from tests.support.runs import between
from tests.support.stores import Meanwhile, MeanwhileStore


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    lab = directory_lab(tmp_path_factory.mktemp("prepared"), images("ab", 2), cache=None)
    first = lab.prepare()["version"]
    lab.add({"a/09.png": png(9)})
    return lab, first, lab.prepare()["version"]


@pytest.fixture
def versions(prepared, tmp_path):
    """A copy of the storage; a test that edits the source copies that, too."""
    lab, first, second = prepared
    storage = shutil.copytree(lab.storage, tmp_path / "storage")
    return replace(lab, storage=storage, output=tmp_path / "out"), first, second


def test_a_rollback_is_one_command_and_the_next_run_undoes_it(versions):
    lab, first, second = versions
    document = tagged(lab, "latest", first[:6])
    assert (document["status"], document["moved_from"]) == ("moved", second)
    assert "--pin" in "\n".join(tag_lines(document))
    assert lab.tag.version == first
    assert lab.check().keys() == {first, second}
    again = lab.prepare()
    assert (again["status"], again["version"], lab.tag.version) == ("reused", second, second)
    assert tagged(lab, "latest")["history"] == [first, second, first]
    assert tagged(lab, "latest", second)["status"] == "current"


@pytest.mark.push
def test_runs_publish_and_leave_a_pinned_tag_and_its_configs(versions, tmp_path):
    lab, first, second = versions
    lab = replace(lab, source=shutil.copytree(lab.source, tmp_path / "source"))
    tagged(lab, "latest", first, pin=True)
    emit(lab.settings(), "latest")
    config = (lab.output / "experiment.yaml").read_text()
    for added, status in (
        ({"a/10.png": png(10)}, "built"),
        ({}, "reused"),
        ({"b/10.png": png(11)}, "built"),
    ):
        lab.add(added)
        document = lab.prepare()
        assert (document["status"], document["pinned"]) == (status, first)
        assert (document["moved_from"], document["configs"]) == (None, [])
        assert lab.tag.version == first
        assert document["version"] in lab.check()
    assert (lab.output / "experiment.yaml").read_text() == config
    with larder_error("version.pinned"):
        tagged(lab, "latest", second)
    assert tagged(lab, "latest", second, pin=True)["pinned"]
    assert tagged(lab, "latest", pin=False)["status"] == "moved"
    assert lab.prepare()["version"] == lab.tag.version != second


def test_tags_are_made_shown_and_deleted(versions):
    lab, first, _ = versions
    assert tagged(lab, "v1", first)["status"] == "moved"
    assert tagged(lab, "v2", "v1")["version"] == first
    assert tagged(lab, "v2", delete=True)["moved_from"] == first


@pytest.mark.parametrize(
    ("arguments", "options", "code"),
    [
        (("v1", "0" * 32), {}, "version.missing"),
        (("v1", "laetst"), {}, "version.missing"),
        (("v1",), {}, "version.missing"),
        (("v1",), {"delete": True}, "version.missing"),
        (("latest",), {"delete": True}, "config.invalid_flag"),
        (("latest", "latest"), {"delete": True}, "config.invalid_flag"),
        (("../x", "latest"), {}, "config.invalid_flag"),
        (("0" * 32, "latest"), {}, "config.invalid_flag"),
    ],
)
def test_what_cannot_be_done_is_refused(prepared, arguments, options, code):
    lab, *_ = prepared
    before = lab.tag
    with larder_error(code):
        tagged(lab, *arguments, **options)
    assert lab.tag == before


def test_a_tag_that_moved_meanwhile_is_refused(tmp_path):
    lab = memory_lab(tmp_path, images("ab", 2), labels={"from": "folder"})
    with between():
        first = lab.prepare()["version"]
        lab.add({"a/09.png": png(9)})
        second = lab.prepare()["version"]
        lab.add({"a/10.png": png(10)})
    meanwhile = Meanwhile()
    meanwhile.before("put", "tags/latest", lab.prepare)
    with (
        between(lambda store: MeanwhileStore(store, meanwhile)),
        larder_error("version.superseded"),
    ):
        tagged(lab, "latest", first)
    assert lab.tag.version not in (first, second)


def test_a_version_that_a_clean_deletes_gets_no_tag(versions):
    lab, first, _ = versions
    tombstone = Tombstone((f"versions/{first}",))
    path = lab.folder / "tombstones/0.json"
    path.parent.mkdir()
    path.write_bytes(seal(tombstone))
    tagged(lab, "announced", first)
    path.write_bytes(seal(Tombstone(tombstone.prefixes, "somebody")))
    with larder_error("version.cleaned"):
        tagged(lab, "v1", first)
    assert not (lab.folder / "tags/v1.json").exists()
    assert json.loads((lab.folder / "tags/announced.json").read_bytes())["version"] == first
    with lab.opened_root() as root:
        assert not [each for each in read_leases(root) if each.name.startswith("run-")]
