"""Loaders have the limit of pixels that the images of a version were checked with."""

import pytest
from image_files import saved
from PIL import Image
from pipeline_lab import directory_lab

import larder
from larder.readers import batch_decoding, split
from tests.support.errors import larder_error


@pytest.mark.parametrize(("kind", "size"), [("JPEG", None), ("PNG", 40)])
def test_a_loader_has_the_limit_that_images_were_checked_with(tmp_path, size, kind, monkeypatch):
    objects = {"a.png": saved(Image.new("RGB", (30, 30)), kind)}
    for module in (split, batch_decoding):
        monkeypatch.setattr(module, "MAX_PIXELS", 100)
    fields = {"labels": None, "cache": None, "validate": "none"}

    def keys(limit: int) -> list[object]:
        lab = directory_lab(tmp_path / str(limit), objects, images={"max_pixels": limit}, **fields)
        lab.prepare()
        data = larder.open(f"{lab.storage}/larder/d")
        loader = data.loader("train", batch_size=1, decode=True, size=size)
        return [batch["key"] for batch in loader]

    assert keys(900) == [["a"]]
    with larder_error("sample.undecodable", "a.png"):
        keys(899)
