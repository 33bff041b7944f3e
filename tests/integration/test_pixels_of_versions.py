"""Every kind of picture in a version: all readers have the same pixels."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from image_files import saved
from PIL import Image, ImageFile
from pipeline_lab import directory_lab

import larder
from larder.readers import batches, split
from tests.support.errors import larder_error
from tests.support.pictures import Array, bands, by_bands, pictures, square

SIZE = 40
"""At least as large as the pictures, so that none is reduced while it is decoded."""


@pytest.fixture(scope="module")
def version(tmp_path_factory):
    """A version with two cut images, and the pixels of the others by key."""
    objects: dict[str, bytes] = {}
    wanted: dict[str, Array] = {}
    for number, picture in enumerate(pictures(1)):
        _, array, _, _ = bands(picture.data)
        if array.dtype == np.uint8:
            objects[f"{number:03}.png"] = picture.data
            wanted[f"{number:03}"] = np.repeat(array, 3 if array.shape[2] == 1 else 1, axis=2)
    jpeg = saved(Image.effect_noise((90, 90), 90), "JPEG")
    cut = {f"{name}.png": jpeg[:-1_000] for name in ("cut", "short")}
    folder = tmp_path_factory.mktemp("pixels")
    plain: dict[str, Any] = {"labels": None, "cache": None, "validate": "none"}
    lab = directory_lab(folder, {**objects, **cut}, **plain)
    lab.prepare()
    return SimpleNamespace(files=f"{lab.storage}/larder/d", wanted=wanted)


def squares(wanted: dict[str, Array]) -> dict[str, Array]:
    method = Image.Resampling.BILINEAR
    return {key: by_bands(square(array), (SIZE, SIZE), method) for key, array in wanted.items()}


def same(found: dict[str, Array], wanted: dict[str, Array]) -> None:
    assert found.keys() == wanted.keys()
    for key, array in wanted.items():
        assert np.array_equal(found[key], array), key


@pytest.mark.parametrize(("workers", "size"), [(0, None), (2, SIZE)])
def test_loaders_have_the_pixels_of_the_files(version, workers, size, monkeypatch):
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    reading = larder.Reading(on_error="skip")
    loader = larder.open(version.files).loader(
        "train", batch_size=8, decode=True, size=size, workers=workers, reading=reading
    )
    found = {
        key: np.array(image)
        for batch in loader
        for key, image in zip(batch["key"], batch["image"], strict=True)
    }
    same(found, version.wanted if size is None else squares(version.wanted))
    assert loader.skipped.count == 2


@pytest.mark.parametrize(("kind", "size"), [("JPEG", None), ("PNG", SIZE)])
def test_a_loader_has_the_limit_that_images_were_checked_with(tmp_path, size, kind, monkeypatch):
    objects = {"a.png": saved(Image.new("RGB", (30, 30)), kind)}
    for module in (split, batches):
        monkeypatch.setattr(module, "MAX_PIXELS", 100)
    fields = {"labels": None, "cache": None, "validate": "none"}

    def keys(limit: int) -> list[Any]:
        lab = directory_lab(tmp_path / str(limit), objects, images={"max_pixels": limit}, **fields)
        lab.prepare()
        data = larder.open(f"{lab.storage}/larder/d")
        loader = data.loader("train", batch_size=1, decode=True, size=size)
        return [batch["key"] for batch in loader]

    assert keys(900) == [["a"]]
    with larder_error("sample.undecodable", "a.png"):
        keys(899)
