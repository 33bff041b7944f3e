"""Several ways of naming samples at once, against a model that was written from the pages.

Objects or members of archives, joined or not, with entries of an annotation file, labels, a
deny-list and images that are encoded again, in datasets that change. ``LARDER_SOURCES`` is the
number of datasets.
"""

import csv
import io
import json
import os
import random
import tarfile
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from required import nightly

import larder
from larder.pipeline.preparing import prepare
from tests.support.runs import run_settings

EXAMPLES = int(os.environ.get("LARDER_SOURCES", "100" if nightly() else "3"))
pytestmark = pytest.mark.timeout(600 + 60 * EXAMPLES)

CLASSES = ("ant", "bee", "élan")
OPTIONS: dict[str, tuple[Any, ...]] = {
    "archives": (False, True),
    "joined": (False, True),
    "annotations": (None, "csv", "jsonl"),
    "missing": ("skip", "keep"),
    "labels": (None, "folder", "file", "column"),
    "images": (None, {"resize": 3, "format": "jpeg"}, {"quality": 80}),
    "format": ("webdataset", "tfrecord", "parquet"),
    "cache": (None, {"records": "encoded"}),
    "removals": ("repack", "omit"),
    "compact": (False, False, True),
}
FIXED = ("archives", "joined")
"""Options that decide how files are named, which the files of a dataset follow."""

Choice = dict[str, Any]


class Picture(NamedTuple):
    """A sample in the source: one colour, perhaps a text, an entry, and a class in a list."""

    colour: tuple[int, int, int]
    text: bytes | None
    caption: str | None
    name: str


def picture(draw: random.Random) -> Picture:
    red, green, blue = draw.randbytes(3)
    text = draw.choice((None, draw.randbytes(5).hex().encode()))
    caption = draw.choice((None, f"é, {draw.randrange(1000)}"))
    return Picture((red, green, blue), text, caption, draw.choice(CLASSES))


def encoded(colour: tuple[int, int, int]) -> bytes:
    target = io.BytesIO()
    Image.new("RGB", (6, 4), colour).save(target, "PNG")
    return target.getvalue()


def parts_of(key: str, each: Picture, options: Choice) -> dict[str, tuple[str, bytes]]:
    """The extension and content of each object of a sample, by the key of the object."""
    tar, names = (".tar" if options["archives"] else ""), options["joined"]
    parts = {"png": encoded(each.colour), **({} if each.text is None else {"txt": each.text})}
    if not names:
        return {f"{sample_of(key, options)}.{ext}": (ext, data) for ext, data in parts.items()}
    pattern = {"png": f"img{tar}/{key}.png", "txt": f"cap/{key}_c.txt"}
    ext_of = {"png": "pic.png", "txt": "cap.txt"}
    return {pattern[ext]: (ext_of[ext], data) for ext, data in parts.items()}


def sample_of(key: str, options: Choice) -> str:
    folder, _, base = key.rpartition("/")
    tar = options["archives"] and not options["joined"]
    return f"{folder}{'.tar' if tar else ''}/{base}"


def write(source: Path, pictures: dict[str, Picture], options: Choice) -> None:
    files: dict[str, bytes] = {}
    members: dict[str, dict[str, bytes]] = {}
    for key, each in sorted(pictures.items()):
        for name, (_, data) in parts_of(key, each, options).items():
            archive, found, member = name.partition(".tar/")
            if found:
                members.setdefault(f"{archive}.tar", {})[member] = data
            else:
                files[name] = data
    for name, contents in members.items():
        with tarfile.open(fileobj=(target := io.BytesIO()), mode="w") as archive_file:
            for member, data in contents.items():
                info = tarfile.TarInfo(member)
                info.size = len(data)
                archive_file.addfile(info, io.BytesIO(data))
        files[name] = target.getvalue()
    lines = [f"{sample_of(key, options)} {each.name}\n" for key, each in pictures.items()]
    if options["labels"] == "file":
        files["labels.list"] = "".join(lines).encode()
    if options["annotations"]:
        files["entries"] = entries(pictures, options)
    there = {str(path.relative_to(source)): path for path in source.rglob("*") if path.is_file()}
    for name in there.keys() - files.keys():
        there[name].unlink()
    for name, data in files.items():
        if name not in there or there[name].read_bytes() != data:
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(data)


def rows_of(pictures: dict[str, Picture], options: Choice) -> dict[str, dict[str, str]]:
    return {
        key: {
            "file_name": next(iter(parts_of(key, each, options))),
            "caption": each.caption,
            "c": each.name,
        }
        for key, each in pictures.items()
        if each.caption is not None
    }


def entries(pictures: dict[str, Picture], options: Choice) -> bytes:
    rows = [*rows_of(pictures, options).values()]
    if options["annotations"] == "jsonl":
        return "".join(json.dumps(row) + "\n" for row in rows).encode()
    writer = csv.DictWriter(text := io.StringIO(), ["file_name", "caption", "c"])
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def fields_of(options: Choice) -> dict[str, Any]:
    tar = ".tar" if options["archives"] else ""
    samples: dict[str, Any] = {"missing": options["missing"]}
    if options["joined"]:
        samples["join"] = {"pic": f"img{tar}/{{id}}.png", "cap": "cap/{id}_c.txt"}
    if kind := options["annotations"]:
        samples["annotations"] = {"files": "entries", "format": kind, "columns": {"n": "caption"}}
    by_file = {"files": dict.fromkeys(("train", "validation"), "labels.list")}
    labels = {"folder": {"from": "folder"}, "file": by_file, "column": {"column": "c"}}
    return {
        "samples": samples,
        "labels": labels.get(options["labels"]),
        "splits": {"by": "hash", "seed": 1, "fractions": {"train": 0.6, "validation": 0.4}},
        "shards": {
            "format": options["format"],
            "samples_per_shard": 4,
            "images": options["images"],
            "features": {"zz": ".n", "a": ".n"} if options["format"] == "tfrecord" else None,
        },
        "cache": options["cache"],
        "growth": {"removals": options["removals"]},
    }


def expected(
    pictures: dict[str, Picture], denied: set[str], options: Choice
) -> dict[str, tuple[str | None, dict[str, bytes]]]:
    """The class and the parts of each sample; of an image, its colour."""
    rows, found = rows_of(pictures, options), {}
    for key, each in pictures.items():
        parts = dict(parts_of(key, each, options).values())
        incomplete = options["joined"] and each.text is None
        if options["annotations"]:
            incomplete |= key not in rows
        if key in denied or (incomplete and options["missing"] == "skip"):
            continue
        if options["annotations"] and key in rows:
            row = json.dumps(rows[key], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
            parts |= {"json": row.encode(), "n": rows[key]["caption"].encode()}
        names = {"folder": key.split("/")[1], "file": each.name, "column": each.name}
        if options["images"] and "format" in options["images"]:
            parts = {ext.replace("png", "jpg"): data for ext, data in parts.items()}
        found[sample_of(key, options)] = names.get(options["labels"]), parts
    return found


def alike(ext: str, stored: bytes, wanted: bytes, options: Choice) -> bool:
    """Whether a part is as it was, or an image has the colour that it had."""
    if options["images"] is None or not ext.endswith(("png", "jpg")):
        return stored == wanted
    images = [np.asarray(Image.open(io.BytesIO(data)), np.int64) for data in (stored, wanted)]
    resized = "resize" in options["images"]
    return min(images[0].shape[:2]) == (3 if resized else 4) and bool(
        np.abs(images[0] - images[1][0, 0]).max() <= (12 if ext.endswith("jpg") else 0)
    )


@settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
@given(st.integers(0, 1 << 32))
def test_every_sample_has_its_parts_and_its_class(seed):
    draw = random.Random(seed)
    options = {name: draw.choice(values) for name, values in OPTIONS.items()}
    pictures: dict[str, Picture] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "source").mkdir()
        for step in range(3):
            for key in draw.sample(sorted(pictures), step and 2):
                del pictures[key]
            for _ in range(10 if step == 0 else 3):
                key = f"{draw.choice('tv')}/{draw.choice(CLASSES)}/{draw.randrange(6)}"
                pictures[key] = picture(draw)
            if step:
                more = {name: draw.choice(values) for name, values in OPTIONS.items()}
                other = draw.choice([each for each in OPTIONS if each not in FIXED])
                options = {**options, other: more[other]}
            if options["labels"] == "column":  # every sample needs an entry then
                options = {**options, "annotations": options["annotations"] or "csv"}
                options["missing"] = "skip"
            pictures["t/ant/6"] = Picture((1, 2, 3), b"x", "c", "ant")  # a version has samples
            check(folder, pictures, set(draw.sample(sorted(pictures), 1)) - {"t/ant/6"}, options)


def check(folder: Path, pictures: dict[str, Picture], denied: set[str], options: Choice) -> None:
    write(folder / "source", pictures, options)
    tar = {"archives": "expand"} if options["archives"] else {}
    gone = [name for key in denied for name in parts_of(key, pictures[key], options)]
    source = {"url": str(folder / "source"), "exclude": gone, **tar}
    wanted = expected(pictures, denied, options)
    run = run_settings(source, folder / "storage", folder / "out", **fields_of(options))
    document = prepare(run._replace(compact=options["compact"]))
    data = larder.open(f"{folder}/storage/larder/d@{document['version']}")
    found = {}
    for split in data.splits:
        batches = data.loader(split, batch_size=3, shuffle=True, workers=0, rank=0, world=1)
        read = {key: batch for batch in batches for key in batch["key"]}
        assert sorted(read) == sorted(data.keys(split))
        for sample in data.samples(split):
            label = None if sample.label is None else data.classes[sample.label]
            found[sample.key] = label, {e: bytes(each) for e, each in sample.parts.items()}
    assert found.keys() == wanted.keys()
    for key, (label, parts) in wanted.items():
        stored = {ext: each for ext, each in found[key][1].items() if ext != "cls"}
        assert (found[key][0], stored.keys()) == (label, parts.keys())
        assert all(alike(ext, stored[ext], parts[ext], options) for ext in parts), key
