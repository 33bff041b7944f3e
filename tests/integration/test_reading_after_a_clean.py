"""A version that was opened before a clean deleted it, and is first read after it."""

import pytest
from catalog_lab import cleaned, drop_all
from pipeline_lab import directory_lab, images, png
from required import at_push

import larder
from larder.versions import layout
from tests.support.errors import larder_error

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
