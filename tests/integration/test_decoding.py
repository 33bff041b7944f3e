"""Samples of audio, arrays and text, decoded in complete runs."""

import io
import struct
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_lab import Lab, directory_lab, failed, png, write
from required import at_push

import larder
from larder.versions.publish import read_segment

DECODING = {"wav": "wav", "npy": "npy", "txt": "text"}


def wav(frames: int, channels: int = 1) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(channels)
        writer.setsampwidth(2)
        writer.setframerate(16_000)
        writer.writeframes(struct.pack("<h", frames % 1_000) * frames * channels)
    return file.getvalue()


def npy(*values: float, dtype: str = "<f4") -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(values, dtype))
    return file.getvalue()


def clips(numbers: Any = range(6)) -> dict[str, bytes]:
    found = {}
    for number in numbers:
        name = f"{'ab'[number % 2]}/{number:02}"
        found |= {
            f"{name}.wav": wav(number + 2),
            f"{name}.npy": npy(number, -number),
            f"{name}.txt": f"words {number}".encode(),
        }
    return found


def clip_lab(folder: Path, objects: dict[str, bytes] | None = None, **fields: Any) -> Lab:
    chosen = clips() if objects is None else objects
    return directory_lab(folder, chosen, **{"decoding": DECODING, **fields})


@pytest.mark.parametrize("memory_bytes", ["1 MiB", *at_push("64 MiB")], ids=["streamed", "whole"])
def test_what_cannot_be_decoded_is_found_while_sharding(tmp_path, memory_bytes):
    long = wav(200_000)
    bad = {"a/90.wav": long[:-1], "a/91.npy": b"none", "b/92.txt": b"\xff", "b/93.wav": long}
    cluster = {"copy": {"memory_bytes": memory_bytes}, "runner": {"batch_bytes": 200_000}}
    lab = clip_lab(tmp_path, clips() | bad, cluster=cluster, cache=None)
    assert failed(lab) == ["a/90.wav", "a/91.npy", "b/92.txt"]
    assert lab.prepare(on_bad_sample="skip")["skipped"] == 3
    lab.only()
    write(str(lab.source), {"a/90.wav": long})
    assert lab.prepare(on_bad_sample="skip")["skipped"] == 2


@pytest.mark.push
def test_a_version_grows_by_arrays_of_the_same_kind(tmp_path):
    lab = clip_lab(tmp_path)
    lab.prepare()
    write(str(lab.source), {"b/99.npy": npy(1, dtype="<f8")})
    assert failed(lab) == ["b/99.npy"]
    write(str(lab.source), {"b/99.npy": npy(1, 2, 3), "b/99.wav": wav(2, channels=2)})
    for path in Path(str(lab.source)).glob("b/05.*"):  # its neighbours are packed again
        path.unlink()
    lab.prepare()
    assert len(lab.newest().version.segments) == 2
    cache = larder.open(f"{lab.storage}/larder/d").cache("train")
    assert [array.shape for array in cache.batch([0, 5])["npy"]] == [(2,), (3,)]
    assert [array.shape for array in cache.batch([0, 5])["wav"]] == [(2, 1), (2, 2)]


def test_a_decoder_less_makes_another_cache_of_the_same_shards(tmp_path):
    lab = clip_lab(tmp_path)
    first = lab.prepare()
    second = lab.prepare(decoding={"wav": "wav"})
    assert second["version"] != first["version"]
    before, after = (lab.check()[each["version"]].version for each in (first, second))
    assert [use.id for use in before.segments] == [use.id for use in after.segments]
    assert [use.cache for use in before.segments] != [use.cache for use in after.segments]


@pytest.mark.push
def test_a_new_decoder_checks_all_samples_again(tmp_path):
    lab = clip_lab(tmp_path, clips() | {"a/90.bin": b"odd"}, decoding={"wav": "wav"}, cache=None)
    lab.prepare()
    assert failed(lab, decoding={"wav": "wav", "bin": "npy"}) == ["a/90.bin"]
    document = lab.prepare(decoding={"wav": "wav", "bin": "npy"}, on_bad_sample="skip")
    assert document["skipped"] == 1
    with lab.opened_root() as root:
        segment = read_segment(root, lab.newest().version.segments[-1].id)
    assert segment is not None
    uses = [(use.ext, use.use, use.version) for use in segment.shape.images.decoders]
    assert uses == [("bin", "npy", "1"), ("wav", "wav", "1")]


def test_a_function_of_the_users(tmp_path, monkeypatch):
    module = tmp_path / "own_levels.py"
    text = """
import numpy as np
from array import array

def levels(data, *, scale=1.0):
    if data == b"none":
        raise KeyError("levels")
    return {"": np.array([len(data) * scale], np.float32), "peak": np.int64(max(data))}

levels.version = VERSION
levels.fields = ("", "peak")
"""
    module.write_text(text.replace("VERSION", "1"))
    monkeypatch.syspath_prepend(tmp_path)
    decoding = {"txt": "own_levels:levels scale=0.5"}
    lab = clip_lab(tmp_path, decoding=decoding)
    first = lab.prepare()
    cache = larder.open(f"{lab.storage}/larder/d").cache("train")
    assert cache.batch([0, 1])["txt"].tolist() == [[3.5], [3.5]]
    assert cache.batch([0, 1])["txt.peak"].tolist() == [ord("w"), ord("w")]
    assert lab.prepare()["status"] == "reused"
    levels: Any = sys.modules["own_levels"]
    monkeypatch.setattr(levels.levels, "version", 2)
    larder_decoders = sys.modules["larder.samples.decoders"]
    larder_decoders._users.cache_clear()
    second = lab.prepare()
    assert (second["status"], second["version"] == first["version"]) == ("built", False)
    lab.check()
    write(str(lab.source), {"b/99.txt": b"none"})
    assert failed(lab) == ["b/99.txt"]


@pytest.mark.push
def test_images_with_a_decoder_of_their_own(tmp_path):
    """Two images of one sample are two fields; transformed ones are decoded as they are stored."""
    objects = {f"a/{n}.jpg": png(n, 40, 30) for n in range(3)}
    objects |= {f"a/{n}.png": png(n, 8, 6) for n in range(3)}
    lab = directory_lab(
        tmp_path, objects, decoding={"jpg": "bytes"}, shards={"images": {"resize": 4}}
    )
    lab.prepare()
    record = larder.open(f"{lab.storage}/larder/d").cache("train")[0]
    assert record["image"].shape == (4, 5, 3)
    assert bytes(record["jpg"][:4]) == b"\x89PNG"
    lab.only()
