"""What a run starts from if documents were deleted: the history of the tag."""

from pathlib import Path

import pytest
from pipeline_lab import DOCUMENT, Lab, directory_lab, images, objects_of, png, write

from larder.versions import layout
from larder.versions.tags import TagEntry
from tests.support.checker import Published, check_version

pytestmark = pytest.mark.push

ADDED = [{"0/00.png": png(90)}, {"0/01.png": png(91), "a/00.png": png(92)}]


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path)


def grow(lab: Lab) -> list[DOCUMENT]:
    """Three versions; the class 0, new in the second, comes after those that have numbers."""
    documents = [lab.prepare()]
    for objects in ADDED:
        write(lab.source, objects)
        documents.append(lab.prepare())
    assert [document["segments"]["total"] for document in documents] == [1, 2, 3]
    return documents


def latest(lab: Lab) -> Published:
    """What the tag names, checked, with the samples of the source and classes in order."""
    with lab.opened_root() as root:
        published = check_version(root, lab.tag.version)
    assert published.version.classes == ("a", "b", "c", "0")
    assert objects_of(published) == images() | ADDED[0] | ADDED[1]
    return published


def delete_versions(lab: Lab, *documents: DOCUMENT) -> None:
    with lab.opened_root() as root:
        for document in documents:
            root.delete(layout.version_key(document["version"]))


def test_of_several_deleted_versions_the_newest_that_is_left_is_grown(lab):
    first, second, third = grow(lab)
    delete_versions(lab, second, third)
    again = lab.prepare()
    assert again["segments"]["total"] == 2
    assert latest(lab).version.segments[0].id in {
        use.id for use in lab.check()[first["version"]].version.segments
    }
    assert lab.tag.history[-1] == TagEntry(third["version"], third["inputs"])
    assert lab.prepare()["status"] == "reused"


def test_without_any_document_the_dataset_is_built_like_the_first_time(lab, tmp_path):
    documents = grow(lab)
    delete_versions(lab, *documents)
    again = lab.prepare()
    fresh = directory_lab(tmp_path / "fresh", images() | ADDED[0] | ADDED[1]).prepare()
    assert again["digest"] == fresh["digest"]
    assert again["segments"]["total"] == 1
    assert list(lab.check()) == [again["version"]]
    assert lab.tag.version == again["version"]
    assert lab.tag.history[-1].version == documents[-1]["version"]
