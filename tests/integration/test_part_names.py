"""A part has one name in batches, from shards and from caches, whatever its extension is."""

import pytest
from pipeline_lab import directory_lab, png
from required import at_push

import larder
from larder.errors import ConfigError

EXTS = ("label", "key", "image", "image.txt", "part.label", "part", "left.key", "txt")
NAMES = {
    "label": "part.label",
    "key": "part.key",
    "image": "part.image",
    "image.txt": "part.image.txt",
    "part.label": "part.part.label",
}
PLAIN = {"validate": "none"}


def objects() -> dict[str, bytes]:
    parts = {f"cat/{at}.{ext}": f"{ext} {at}".encode() for at in range(3) for ext in EXTS}
    return parts | {f"cat/{at}.image.png": png(at) for at in range(3)}


@pytest.mark.parametrize("cache", [None, {"records": "encoded"}])
def test_no_part_takes_the_place_of_a_key_or_a_label(tmp_path, cache):
    lab = directory_lab(tmp_path, objects(), **PLAIN, cache=cache)
    lab.prepare()
    data = larder.open(f"{lab.storage}/larder/d")
    (batch,) = data.loader("train", batch_size=3)
    assert batch.pop("key") == ["cat/0", "cat/1", "cat/2"]
    assert batch.pop("label").tolist() == [0, 0, 0]
    pictures = batch.pop("part.image.png")
    assert [bytes(picture) for picture in pictures] == [png(at) for at in range(3)]
    assert {name: [bytes(value) for value in values] for name, values in batch.items()} == {
        NAMES.get(ext, ext): [f"{ext} {at}".encode() for at in range(3)] for ext in EXTS
    }


@pytest.mark.parametrize("cache", [None, *at_push({"records": "encoded"})])
def test_columns_and_images_are_chosen_by_these_names(tmp_path, cache):
    lab = directory_lab(tmp_path, objects(), **PLAIN, cache=cache)
    lab.prepare()
    data = larder.open(f"{lab.storage}/larder/d")
    columns = ["key", "label", "part.label", "part.part.label", "image.image"]
    options = {"batch_size": 3, "columns": columns, "decode": larder.Images(masks=["image.png"])}
    (batch,) = data.loader("train", **options)
    assert list(batch) == columns
    assert bytes(batch["part.label"][1]) == b"label 1"
    assert bytes(batch["part.part.label"][1]) == b"part.label 1"
    assert batch["image.image"].shape == (3, 7, 9, 3)
    with pytest.raises(ConfigError, match="no value"):
        data.loader("train", batch_size=3, columns=["part.cls"])
