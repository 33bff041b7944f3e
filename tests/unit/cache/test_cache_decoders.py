import io
import struct
import wave
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cache_shelf import Shelf
from image_files import saved
from PIL import Image

from larder.budgets import ByteBudget
from larder.cache.file import CacheFileReader, open_file
from larder.cache.from_samples import build_samples
from larder.cache.schema import Field
from larder.config.shape import decoder_uses
from larder.errors import LarderError
from larder.readers.cache import CacheReader
from larder.samples.decoders import Decoders

BYTES = Field("key", "uint8", (None,))


def npy(array: Any, dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array, dtype))
    return file.getvalue()


def wav(frames: int, channels: int = 1, rate: int = 16_000) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(struct.pack("<h", frames) * frames * channels)
    return file.getvalue()


def filled(shelf: Shelf, *samples: Mapping[str, bytes]) -> Shelf:
    """One shard of a sample each."""
    for number, parts in enumerate(samples):
        shelf.add_shard(f"{number}.tar", [(f"k{number}", None, parts)])
    return shelf


def built(shelf: Shelf, tmp_path: Path, kind: Any = "decoded", **lines: str) -> CacheFileReader:
    path = tmp_path / "x.mdb"
    facts = build_samples(
        shelf.samples(kind, decoders=Decoders(decoder_uses(lines))),
        path,
        limit_bytes=1 << 30,
        budget=ByteBudget(1),  # every part alone
    )
    return open_file(path, facts, verify=True)


def refused(shelf: Shelf, tmp_path: Path, **lines: str) -> LarderError:
    with pytest.raises(LarderError) as caught:
        built(shelf, tmp_path, **lines)
    assert list(tmp_path.iterdir()) == []
    return caught.value


def test_arrays_of_one_shape_are_stacked(shelf, tmp_path):
    values = [np.arange(6).reshape(2, 3) + number for number in range(5)]
    filled(shelf, *({"npy": npy(value)} for value in values))
    with built(shelf, tmp_path, npy="npy") as reader:
        assert reader.schema.fields == (Field("npy", "float32", (2, 3)), BYTES)
        batch = CacheReader([reader]).batch([4, 0])
        assert batch["npy"].tolist() == [values[4].tolist(), values[0].tolist()]


def test_dimensions_that_differ_are_open(shelf, tmp_path):
    shapes = [(3, 2, 4), (5, 2, 4), (3, 2, 7)]
    filled(shelf, *({"npy": npy(np.ones(shape))} for shape in shapes))
    with built(shelf, tmp_path, npy="npy") as reader:
        assert reader.schema.fields[0] == Field("npy", "float32", (None, 2, None))
        assert [record["npy"].shape for record in reader] == shapes
        assert [array.shape for array in CacheReader([reader]).batch([0, 1])["npy"]] == shapes[:2]


def test_audio_keeps_its_rate(shelf, tmp_path):
    filled(shelf, {"wav": wav(3)}, {"wav": wav(5, rate=44_100)}, {"txt": b"silent"})
    with built(shelf, tmp_path, wav="wav") as reader:
        assert reader.schema.fields == (
            Field("txt", "uint8", (None,), optional=True),
            Field("wav", "int16", (None, 1), optional=True),
            Field("wav.rate", "int64", (), optional=True),
            BYTES,
        )
        assert [int(record["wav.rate"]) for record in (reader[0], reader[1])] == [16_000, 44_100]
        assert reader[1]["wav"].tolist() == [[5]] * 5
        assert reader[2].keys() == {"txt", "key"}


def test_a_smallest_array_is_like_any_other(shelf, tmp_path):
    """The shape of a field before anything was seen is also one that an array may have."""
    filled(shelf, *({"npy": npy(np.zeros(shape), "u1")} for shape in ((0, 0, 1), (2, 0, 1))))
    with built(shelf, tmp_path, npy="npy") as reader:
        assert reader.schema.fields[0] == Field("npy", "uint8", (None, 0, 1))
        assert [record["npy"].shape for record in reader] == [(0, 0, 1), (2, 0, 1)]


def test_masks_have_fields_of_their_own(shelf, tmp_path):
    colour = saved(Image.fromarray(np.full((2, 3, 3), 9, np.uint8)))
    numbers = np.array([[0, 100, 255], [7, 8, 9]], np.uint8)
    picture = Image.fromarray(numbers)
    picture.putpalette(bytes(range(255, -1, -1)) * 3)
    mask = saved(picture)
    filled(shelf, *[{"jpg": colour, "png": mask, "seg.png": mask, "rgb.png": mask}] * 2)
    with built(shelf, tmp_path, png="mask", **{"rgb.png": "image"}) as reader:
        assert [field.name for field in reader.schema.fields] == [
            "image",
            "image.rgb",
            "image.seg",
            "mask",
            "key",
        ]
        for name in ("mask", "image.seg"):
            np.testing.assert_array_equal(reader[1][name], numbers[..., None])
        assert reader[1]["image.rgb"].shape == (2, 3, 3)


@pytest.mark.parametrize("other", [npy([1], "<f8"), npy([[1]])], ids=["float64", "rank 2"])
def test_arrays_of_another_kind_are_refused(shelf, tmp_path, other):
    filled(shelf, {"npy": npy([1])}, {"npy": npy([2, 3])}, {"npy": other})
    error = refused(shelf, tmp_path, npy="npy")
    assert error.code == "cache.schema"
    assert error.where.endswith("2.tar: k2.npy")


@pytest.mark.parametrize(
    "samples",
    [[{"wav": wav(3), "wav.rate": b"16000"}], [{"wav": wav(3)}, {"wav.rate": b"16000"}]],
    ids=["two parts of one sample", "bytes in some samples and numbers in others"],
)
def test_parts_that_cannot_share_a_field_are_refused(shelf, tmp_path, samples):
    assert refused(filled(shelf, *samples), tmp_path, wav="wav").code == "cache.schema"
