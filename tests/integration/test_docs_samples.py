"""The joins of docs/how-to/samples.md for the names that Roboflow gives, as they stand there."""

import json
import re
from pathlib import Path
from typing import Any

from archives_lab import samples
from pipeline_lab import Lab, directory_lab
from ruamel.yaml import YAML

PAGE = Path(__file__).parents[2] / "docs/how-to/samples.md"
PLAIN: dict[str, Any] = {"labels": None, "cache": None, "validate": "none"}


def blocks(heading: str) -> list[dict[str, Any]]:
    section = PAGE.read_text().split(f"## {heading}\n")[1].split("\n## ")[0]
    return [YAML(typ="safe").load(text) for text in re.findall(r"(?s)```yaml\n(.*?)```", section)]


def lab_of(folder: Path, objects: dict[str, bytes], block: dict[str, Any]) -> Lab:
    fields = {name: value for name, value in block.items() if name != "source"}
    lab = directory_lab(folder, objects, **PLAIN, **fields)
    return Lab({"url": lab.source, **block.get("source", {})}, lab.storage, lab.output, lab.fields)


def test_the_pictures_and_boxes_of_an_export_for_yolo(tmp_path):
    yolo, _ = blocks("Names of Roboflow")
    names = {"0a1b": "train/{}/dog_jpg", "2c3d": "train/{}/dog_jpg", "4e5f": "valid/{}/a-b_png"}
    objects = {
        f"{name.format(kind)}.rf.{hash_}.{ext}": f"{kind} {hash_}".encode()
        for hash_, name in names.items()
        for kind, ext in (("images", "jpg"), ("labels", "txt"))
    }
    lab = lab_of(tmp_path, objects, yolo)
    assert lab.prepare()["shards"]["samples"] == 3
    assert samples(lab) == {
        hash_: {"image.jpg": f"images {hash_}".encode(), "boxes.txt": f"labels {hash_}".encode()}
        for hash_ in names
    }
    assert [sample.key for sample in lab.only().samples["validation"]] == ["4e5f"]


def test_the_annotations_of_an_export_for_coco(tmp_path):
    _, coco = blocks("Names of Roboflow")
    objects = {"train/README.dataset.txt": b"x", "README.roboflow.txt": b"x"}
    for folder, hashes in {"train": ["0a1b", "2c3d"], "valid": ["4e5f"]}.items():
        keys = [f"dog_jpg.rf.{hash_}.jpg" for hash_ in hashes]
        objects |= {f"{folder}/{key}": key.encode() for key in keys}
        images = [{"id": at, "file_name": key} for at, key in enumerate(keys)]
        document = {"images": images, "annotations": [], "categories": []}
        objects[f"{folder}/_annotations.coco.json"] = json.dumps(document).encode()
    lab = lab_of(tmp_path, objects, coco)
    lab.prepare()
    found = samples(lab)
    assert list(found) == ["0a1b", "2c3d", "4e5f"]
    assert all(set(parts) == {"image.jpg", "json"} for parts in found.values())
    assert json.loads(found["4e5f"]["json"])["image"]["file_name"] == "dog_jpg.rf.4e5f.jpg"
