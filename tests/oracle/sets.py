"""Small datasets of every form, prepared with the public API, for the rows of the oracle."""

from __future__ import annotations

import io
import random
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

import larder
from larder.store import open_store

COMMON = """\
splits: {train: "**"}
validate: decode
decoding: {seg.png: mask}
growth: {mode: append, removals: omit}
"""
NAMES = ("plain", "encoded", "decoded", "built")
# One table of classes, so that datasets may be mixed, in which no two datasets share a class.
CLASSES = ", ".join(f"{letter}{name}" for name in NAMES for letter in "abc")
LABELS = f"labels: {{from: folder, classes: [{CLASSES}]}}\n"
# By name: lines of the dataset file, and the number of samples.
FORMS = {
    "plain": (LABELS + "shards: {samples_per_shard: 11, shuffle_seed: 7}\n", 75),
    "sorted": ("shards: {samples_per_shard: 9}\n", 61),
    "encoded": (LABELS + "shards: {samples_per_shard: 13}\ncache: {records: encoded}\n", 67),
    "decoded": (LABELS + "shards: {samples_per_shard: 14}\ncache: {records: decoded}\n", 71),
    "built": (
        LABELS + "shards: {samples_per_shard: 15}\n"
        "cache: {builder: 'tests.oracle.functions:built', builder_inputs: {rate: 3}}\n",
        59,
    ),
}


def _saved(image: Image.Image) -> bytes:
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _objects(name: str, number: int, draw: random.Random) -> dict[str, bytes]:
    """The parts of a sample: an image of colours or grey, a mask, and mostly a text."""
    width, height = (12, 10) if name != "sorted" else (draw.randrange(8, 14), 9)
    picture = Image.frombytes("RGB", (width, height), draw.randbytes(3 * width * height))
    if number % 7 == 3:
        picture = picture.convert("L")
    mask = Image.frombytes("P", (width, height), draw.randbytes(width * height))
    mask.putpalette(draw.randbytes(768))
    parts = {"png": _saved(picture), "seg.png": _saved(mask)}
    if number % 5:
        parts["txt"] = draw.randbytes(draw.randrange(1, 60))
    return parts


def _write(name: str, source: Path, numbers: range, seed: int) -> None:
    for number in numbers:
        draw = random.Random(f"{name} {number} {seed}")
        folder = source / f"{'abc'[number % 3]}{name}"
        folder.mkdir(parents=True, exist_ok=True)
        for ext, data in _objects(name, number, draw).items():
            (folder / f"{name}{number:04}.{ext}").write_bytes(data)


def prepare(place: Path, name: str) -> None:
    """Prepare a dataset in ``place/storage``, in two steps, so that it has omitted samples."""
    lines, count = FORMS[name]
    configs, source = place / "configs", place / "sources" / name
    (configs / "datasets").mkdir(parents=True, exist_ok=True)
    (configs / "clusters").mkdir(exist_ok=True)
    storage = f"storage: {{url: {place}/storage}}\nconsumer: {{kind: json}}\n"
    (configs / "clusters" / "local.yaml").write_text(storage)
    text = f"name: {name}\nsource: {{url: {source}}}\n{COMMON}{lines}"
    (configs / "datasets" / f"{name}.yaml").write_text(text)
    _write(name, source, range(count - 12), 1)
    larder.prepare(name, config_dir=configs, output=place / "out")
    for number in range(0, count - 12, 11):  # removed, and changed
        for path in source.glob(f"*/{name}{number:04}.*"):
            path.unlink()
    _write(name, source, range(5, 7), 2)
    _write(name, source, range(count - 12, count), 1)
    larder.prepare(name, config_dir=configs, output=place / "out")


def damage(place: Path, name: str, keys: list[str], to: Path) -> None:
    """Copy a dataset's storage, and change the last byte of the image of these samples in it."""
    shutil.copytree(place / "storage/larder" / name, to / "larder" / name)
    files = [
        path
        for path in (to / "larder" / name).rglob("*")
        if path.parent.name == "train" or path.suffix == ".mdb"
    ]
    for key in keys:
        data = _needle(place, name, key)
        for path in files:
            content = path.read_bytes()
            at = content.find(data)
            if at >= 0:
                end = at + len(data) - 1
                path.write_bytes(content[:end] + bytes([content[end] ^ 1]) + content[end + 1 :])


def _needle(place: Path, name: str, key: str) -> bytes:
    """What shards and caches of a form contain of a sample and of no other."""
    data = (place / "sources" / name / f"{key}.png").read_bytes()
    if name in ("decoded", "built"):
        data = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).tobytes()
    return data


def upload(place: Path, name: str, bucket: str, endpoint: str) -> None:
    """Copy a dataset's storage into a bucket, such as ``s3://oracle``."""
    root = place / "storage"
    store = open_store(bucket, endpoint=endpoint)
    for path in (root / "larder" / name).rglob("*"):
        if path.is_file():
            store.put(str(path.relative_to(root)), path.read_bytes())
