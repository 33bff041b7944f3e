"""What a run starts from if documents were deleted: the history of the tag."""

import pytest
from pipeline_lab import directory_lab, images, objects_of, png

from larder.versions import layout
from larder.versions.tags import TagEntry

pytestmark = pytest.mark.push

ADDED = [{"0/00.png": png(90)}, {"0/01.png": png(91), "a/00.png": png(92)}]


@pytest.mark.parametrize("deleted", [2, 3])
def test_the_newest_version_that_is_left_is_grown(tmp_path, deleted):
    """Without any, the dataset is built like the first time."""
    lab = directory_lab(tmp_path)
    documents = [lab.prepare()]
    for objects in ADDED:
        lab.add(objects)
        documents.append(lab.prepare())
    assert [document["segments"]["total"] for document in documents] == [1, 2, 3]
    for document in documents[3 - deleted :]:
        (lab.folder / layout.version_key(document["version"])).unlink()
    again = lab.prepare()
    published = lab.newest()
    assert objects_of(published) == images() | ADDED[0] | ADDED[1]
    assert lab.tag.history[-1] == TagEntry(documents[-1]["version"], documents[-1]["inputs"])
    segments = [use.id for use in published.version.segments]
    if deleted == 2:  # the class 0 comes after those that have numbers
        assert published.version.classes == ("a", "b", "c", "0")
        (first,) = lab.check()[documents[0]["version"]].version.segments
        assert (len(segments), segments[0]) == (2, first.id)
    else:
        fresh = directory_lab(tmp_path / "fresh", images() | ADDED[0] | ADDED[1]).prepare()
        assert (len(segments), again["digest"]) == (1, fresh["digest"])
    assert lab.prepare()["status"] == "reused"
