"""Functions that vary images at random."""

import io

import numpy as np
import pytest
from image_files import saved
from PIL import Image

from larder.readers import image_decoding
from larder.readers.augment import RandomResizedCrop
from larder.readers.batch_decoding import Decoding, Draws, batch_of
from larder.samples.indexed import Sample
from tests.support.errors import larder_error


def gradient(width, height):
    """Red rises with the column, green with the row."""
    columns, rows = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    pixels = np.stack([columns, rows, np.zeros_like(rows)], axis=-1).astype(np.uint8)
    return Image.fromarray(pixels)


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize(("width", "height"), [(500, 375), (60, 80), (900, 20)])
@pytest.mark.parametrize("decoder", ["simplejpeg", "pillow"])
def test_a_file_and_its_array_give_the_same_piece(width, height, size, decoder, monkeypatch):
    if decoder == "pillow":
        monkeypatch.setattr(image_decoding, "_simplejpeg", lambda: None)
    image = gradient(width, height)
    crop = RandomResizedCrop(size)
    for seed in range(5):
        for data in (saved(image, "JPEG", quality=95), saved(image, "PNG")):
            pixels = np.asarray(Image.open(io.BytesIO(data)))
            of_file = crop({"key": "k", "jpg": data}, np.random.default_rng(seed))
            of_array = crop({"key": "k", "image": pixels}, np.random.default_rng(seed))
            assert of_file.keys() == of_array.keys() == {"key", "image"}
            assert of_file["image"].shape == (size, size, 3)
            difference = of_file["image"].astype(int) - of_array["image"]
            assert np.abs(difference).mean() < 4, "but for the way it is scaled"


@pytest.mark.parametrize(("size", "height"), [(300, 375), (180, 188), (90, 94), (40, 47)])
@pytest.mark.parametrize("decoder", ["simplejpeg", "pillow"])
def test_a_jpeg_is_halved_as_often_as_its_piece_allows(size, height, decoder, monkeypatch):
    if decoder == "pillow":
        monkeypatch.setattr(image_decoding, "_simplejpeg", lambda: None)
    monkeypatch.setattr(image_decoding, "scaled", lambda pixels, *_: pixels)
    sample = {"jpg": saved(gradient(500, 375), "JPEG", quality=95)}
    made = RandomResizedCrop(size, scale=(1, 1))(sample, np.random.default_rng(0))
    assert made["image"].shape[0] == height


def test_pieces_vary_within_their_bounds():
    """The ranges of red and green say where a piece is."""
    image, areas, mirrored = np.asarray(gradient(256, 256)), [], 0
    crop = RandomResizedCrop(64, scale=(0.25, 0.5))
    for seed in range(200):
        pixels = crop({"key": "k", "image": image}, np.random.default_rng(seed))["image"]
        across = int(pixels[0, -1, 0]) - int(pixels[0, 0, 0])
        mirrored += across < 0
        areas.append(abs(across) * (int(pixels[-1, 0, 1]) - int(pixels[0, 0, 1])) / 255**2)
    assert 0.2 < min(areas) < 0.27
    assert 0.46 < max(areas) < 0.52
    assert 70 < mirrored < 130
    whole = RandomResizedCrop(256, scale=(1, 1), mirror=0)
    same = whole({"key": "k", "image": image}, np.random.default_rng(0))
    assert np.array_equal(same["image"], image)


def test_a_part_is_named_where_there_are_several():
    data = saved(gradient(9, 9), "JPEG")
    sample = {"key": "k", "left.jpg": data, "right.jpg": data, "txt": b"x"}
    made = RandomResizedCrop(8)({"jpg": data}, np.random.default_rng(0))
    assert list(made) == ["image"]
    made = RandomResizedCrop(8, "right.jpg")(sample, np.random.default_rng(0))
    assert list(made) == ["image.right", "key", "left.jpg", "txt"]
    for crop, given in (
        (RandomResizedCrop(8), sample),
        (RandomResizedCrop(8, "jpg"), sample),
        (RandomResizedCrop(8), {"key": "k", "txt": b"x"}),
    ):
        with larder_error("config.invalid_value", "part"):
            crop(given, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("where", "options"),
    [
        ("size", {"size": 0}),
        ("scale", {"size": 8, "scale": (0.5, 1.5)}),
        ("scale", {"size": 8, "scale": (0, 1)}),
    ],
)
def test_wrong_bounds_are_refused(where, options):
    with larder_error("config.invalid_value", where):
        RandomResizedCrop(**options)


def test_what_is_no_image_is_named():
    batch = batch_of([Sample("a", None, {"jpg": b"none"})])
    decode = Decoding(map=RandomResizedCrop(8))
    with larder_error("sample.undecodable", "a.jpg"):
        decode(batch, draws=Draws(0, 0, np.zeros(1, np.int64)))
