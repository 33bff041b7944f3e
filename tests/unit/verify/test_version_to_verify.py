"""Which version a verification reads, by an ID, its beginning or a tag."""

import uuid
from types import SimpleNamespace

import pytest

from larder.progress import NullProgress
from larder.store import open_store
from larder.verify.document_check import DocumentReader
from larder.verify.verifying import _hint
from larder.versions import layout
from tests.support.errors import larder_error
from tests.support.stores import RecordingStore

ONE, OTHER, LOST = "1" * 32, "1" * 31 + "2", "3" * 32
TAGS = {"latest": ONE}


@pytest.fixture
def root():
    return open_store(f"memory://{uuid.uuid4().hex}/", retry=None)


def chosen(root, name, tags):
    for version in (ONE, OTHER):
        root.put(layout.version_key(version), b"x")
    root.put(f"{layout.version_prefix(LOST)}classes.json", b"x")
    store = RecordingStore(root)
    job = SimpleNamespace(version=name, dataset=SimpleNamespace(name="d"))
    reader = DocumentReader(job, store, NullProgress())
    return reader.version_id(tags), reader.findings, {call.key for call in store.calls}


@pytest.mark.parametrize(
    ("name", "tags", "version"),
    [
        ("latest", TAGS, ONE),
        (ONE, TAGS, ONE),
        (ONE, {}, ONE),
        (LOST, TAGS, LOST),
        (OTHER, {"v1": ONE}, OTHER),
    ],
)
def test_a_version_that_is_known_is_found_without_a_listing_of_all(root, name, tags, version):
    found, noted, listed = chosen(root, name, tags)
    assert (found, "versions/" in listed) == (version, False)
    assert [each.path for each in noted] == ([] if "latest" in tags else ["tags/latest.json"])


@pytest.mark.parametrize(
    ("name", "tags"), [("latest", {}), ("latest", {"latest": ""}), ("v1", {"v1": ""})]
)
def test_a_lost_tag_names_the_versions_to_choose_from(root, name, tags):
    found, (finding,), _ = chosen(root, name, tags)
    assert (found, finding.path, finding.role) == ("", f"tags/{name}.json", "tag")
    assert (ONE in finding.message) == (name == "latest")
    assert LOST not in finding.message
    assert ("--version ID" in _hint([finding], repair=False)) == (name == "latest")
    assert ("delete it" in _hint([finding], repair=False)) == (name != "latest")


@pytest.mark.parametrize(
    ("name", "code"), [("1" * 31, "ambiguous"), ("v1", "missing"), ("9" * 32, "missing")]
)
def test_a_name_of_no_version_or_of_two_is_refused(root, name, code):
    with larder_error(f"version.{code}"):
        chosen(root, name, TAGS)


def test_a_lost_tag_of_no_version(root):
    job = SimpleNamespace(version="latest", dataset=SimpleNamespace(name="d"))
    with larder_error("version.missing"):
        DocumentReader(job, root, NullProgress()).version_id({})
    reader = DocumentReader(job, root, NullProgress())
    assert reader.version_id({"latest": ""}) == ""
    assert "; none has a version.json" in reader.findings[0].message
