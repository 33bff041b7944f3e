"""The contents of a plan: statistics, exclusions and warnings, as lines and as a document."""

import gc
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import webdataset as wds
from pipeline_lab import Lab, directory_lab, images, png, write

import larder
from larder.pipeline.planning.plan_report import plan_lines
from larder.pipeline.prepare import prepare
from larder.pipeline.run_report import run_lines
from larder.pipeline.settings import load_settings
from tests.support.runs import TEMPLATE, run_settings

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs"
EIGHT = {**TEMPLATE, "resources": {"slots_per_trial": 8}}


def lines(document: dict[str, Any]) -> list[str]:
    found = plan_lines(document)
    assert json.dumps(document, allow_nan=False)
    for line in found:
        assert len(line) <= 80 or " " not in line.strip(), line
    return found


def text(document: dict[str, Any]) -> str:
    """The lines as one, however they are cut."""
    return " ".join(" ".join(lines(document)).split())


def warnings(document: dict[str, Any]) -> dict[str, str]:
    found = {each["code"]: each["message"] for each in document["warnings"]}
    for message in found.values():
        assert message in text(document)
    return found


def as_webdataset_reads(shards: Sequence[str]) -> dict[str, dict[str, bytes]]:
    """The parts of each sample; the caller ignores that webdataset leaves files open."""
    found = {
        sample["__key__"]: {ext: data for ext, data in sample.items() if not ext.startswith("__")}
        for sample in wds.WebDataset(list(shards), shardshuffle=False)
    }
    gc.collect()  # while the warning is ignored
    return found


def test_excluded_objects_are_counted_and_named(tmp_path):
    extra = {"README": b"x", "a/raw.tif": b"x", "b/notes.txt": b"y", "b/zz.png": png(1)}
    lab = directory_lab(tmp_path, images() | extra)
    source = {"url": lab.source, "include": ["**/*.png", "**/*.json"], "exclude": ["b/zz*"]}
    document = Lab(source, lab.storage, lab.output, lab.fields).plan()
    assert document["objects"]["count"] == 15
    assert document["excluded"] == {
        "listed": 19,
        "not_included": {"count": 3, "keys": ["README", "a/raw.tif", "b/notes.txt"]},
        "excluded": {"count": 1, "keys": ["b/zz.png"]},
        "ignored": 0,
    }


def test_only_the_first_keys_are_named_and_none_can_alter_a_terminal(tmp_path):
    write("memory://escape", {f"x{n:05}\x1b[31m.log": b"" for n in range(2_300)} | {"a/1.txt": b""})
    source = {"url": "memory://escape", "include": ["**/*.txt"]}
    document = prepare(run_settings(source, tmp_path / "local", tmp_path), plan_only=True)
    assert document["excluded"]["not_included"]["count"] == 2_300
    assert len(document["excluded"]["not_included"]["keys"]) == 5
    assert "\x1b" not in text(document)
    assert "x00003\\x1b[31m.log and 2,296 more" in text(document)


def test_parts_and_classes(tmp_path):
    objects = images("abc", 4) | {"d/00.png": png(9), "d/00.json": b"{}"}
    document = directory_lab(tmp_path, objects).plan()
    sizes = {
        ext: sum(len(objects[key]) for key in objects if key.endswith(ext))
        for ext in ("png", "json")
    }
    assert document["parts"] == [
        {"ext": "png", "objects": 13, "bytes": sizes["png"]},
        {"ext": "json", "objects": 4, "bytes": sizes["json"]},
    ]
    assert document["classes"] == {
        "count": 4,
        "names": ["a", "b", "c", "d"],
        "smallest": {"name": "d", "samples": 1},
        "largest": {"name": "a", "samples": 4},
    }
    assert directory_lab(tmp_path / "2", labels=None).plan()["classes"] is None


COCO = json.dumps(
    {
        "images": [{"id": 1, "file_name": "a/00.png", "width": 9, "height": 7}],
        "annotations": [{"image_id": 1, "category_id": 1, "bbox": [1, 1, 7, 5]}],
        "categories": [{"id": 1, "name": "cat"}],
    }
).encode()
ENTRIES = b'{"file_name": "/a/00.png", "text": "x"}\n{"file_name": "a/01.png", "text": "y"}\n'
BOXES = {"files": "x.json", "part": "boxes.json"}
TEXTS = {"files": "x.jsonl", "columns": {"txt": "text"}}
RESIZED = {"images": {"resize": 4}}
EVERY_JSON = {f"{name}/{number:02}.json": b"{}" for name in "abc" for number in range(4)}


def boxed(annotations: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """Samples with annotations, of which there need not be any."""
    samples = {"annotations": annotations, "missing": "keep"}
    return {"samples": samples, "labels": None, "cache": None, **fields}


def looped(**hyperparameters: Any) -> dict[str, Any]:
    """A template with eight slots, and with workers of a loader."""
    return {**EIGHT, "hyperparameters": hyperparameters}


@pytest.mark.parametrize(
    ("code", "objects", "fields", "warned"),
    [
        ("uneven_samples", {}, {}, True),
        ("uneven_samples", EVERY_JSON, {}, False),
        ("uneven_samples", {**EVERY_JSON, "d/00.json": b"{}"}, {}, True),
        ("few_shards", {}, {"template": TEMPLATE, "shards": {}}, True),
        ("few_shards", {}, {"template": looped(workers={"val": 8}), "shards": {"bytes": 1}}, True),
        ("few_shards", {}, {"template": looped(num_workers=3), "shards": {"count_min": 2}}, True),
        ("few_shards", {}, {"template": EIGHT, "shards": {"count_min": 2}}, True),
        ("few_shards", {}, {"template": EIGHT, "shards": {"samples_per_shard": 1}}, False),
        ("few_shards", {}, {"template": EIGHT, "shards": {"count_min": 8}}, False),
        ("unused_entries", {"x.jsonl": ENTRIES}, boxed(TEXTS), True),
        ("unused_parts", {}, {"shards": {"images": {"resize": 4, "masks": ["seg"]}}}, True),
        (
            "unused_parts",
            {"a/00.seg.png": png(1)},
            {"shards": {"images": {"resize": 4, "masks": ["seg"]}}},
            False,
        ),
        ("source_pixels", {"x.json": COCO}, boxed(BOXES, shards=RESIZED), True),
        (
            "source_pixels",
            {"X.JSON": COCO},
            boxed({**BOXES, "files": "X.JSON"}, shards=RESIZED),
            True,
        ),
        (
            "source_pixels",
            {"x.json": COCO},
            boxed(BOXES, cache={"records": "decoded", "images": {"resize": [4, 4]}}),
            True,
        ),
        ("source_pixels", {"x.json": COCO}, boxed(BOXES, cache={"records": "decoded"}), False),
        ("source_pixels", {"x.json": COCO}, boxed(BOXES, shards={"images": {"quality": 8}}), False),
        ("source_pixels", {"x.jsonl": ENTRIES}, boxed(TEXTS, shards=RESIZED), False),
    ],
)
def test_a_plan_warns_only_with_a_reason(tmp_path, code, objects, fields, warned):
    lab = directory_lab(tmp_path, images() | objects, splits={"train": "*/**"})
    assert (code in warnings(lab.plan(**fields))) is warned


def test_the_shipped_templates_need_as_many_shards_as_their_loaders_read(tmp_path):
    """45 shards of ImageNet's validation are too few for eight GPUs with eight loaders each."""
    write(
        "memory://readers", {f"val/{name}/1.JPEG": b"x" for name in "ab"} | {"train/a/1.JPEG": b"x"}
    )
    settings = load_settings(
        "imagenet-folders",
        config_dir=CONFIGS,
        settings=["source.url=memory://readers", f"cluster.storage.url={tmp_path}"],
        environ={},
    )
    found = [each["message"] for each in prepare(settings, plan_only=True)["warnings"]]
    assert "validation has 1 shard; resnet50.yaml has 64 readers" in " ".join(found)


def test_the_dataset_files_leaves_out_what_is_not_a_sample(tmp_path):
    """An arbitrary folder: the bundled file accepts it, and lists what it left out."""
    odd = {".DS_Store": b"\0", "README": b"read", "b/.DS_Store": b"\0", "b/Makefile": b"all:"}
    write(tmp_path / "source", {"1.txt": b"one", "b/2.jpg": b"any bytes", "b/2.json": b"{}"} | odd)
    settings = load_settings(
        "files",
        config_dir=CONFIGS,
        settings=[f"source.url={tmp_path}/source", f"cluster.storage.url={tmp_path}/storage"],
        output=tmp_path / "out",
        environ={},
    )
    planned = prepare(settings, plan_only=True)
    assert sorted(failure["key"] for failure in planned["failures"]) == sorted(odd)
    document = prepare(settings)
    assert (document["shards"]["samples"], document["skipped"]) == (2, 4)
    assert any("skipped  4" in line for line in run_lines(document))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset's own
def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch, capsys):
    tutorial = (REPOSITORY / "docs/tutorial.md").read_text()
    described, code = (
        re.search(rf"```{kind}\n(.*?)```", tutorial, re.DOTALL) for kind in ("yaml", "python")
    )
    assert described
    assert code
    configs = tmp_path / "configs"
    for folder in ("clusters", "experiments"):
        shutil.copytree(CONFIGS / folder, configs / folder)
    (configs / "datasets").mkdir()
    (configs / "datasets/pets.yaml").write_text(described[1])
    pets = {f"{name}/{n}.jpg": png(n) for name in ("cat", "dog") for n in range(1, 21)}
    write(tmp_path / "pets", pets | {"cat/1.json": b'{"age": 3}', "README": b"not included"})
    monkeypatch.chdir(tmp_path)
    settings = load_settings(
        "pets", config_dir=configs, settings=[f"source.url={tmp_path / 'pets'}"], environ={}
    )
    planned = prepare(settings, plan_only=True)
    assert planned["excluded"]["not_included"] == {"count": 1, "keys": ["README"]}
    assert {part["ext"]: part["objects"] for part in planned["parts"]} == {"jpg": 40, "json": 1}
    document = prepare(settings)
    assert (document["status"], document["skipped"]) == ("built", 0)
    data = larder.open("data/local/larder/pets@latest")
    shards = [*data.shards("train"), *data.shards("validation")]
    samples = as_webdataset_reads(shards)
    assert samples["cat/1"] == {"cls": b"0", "json": b'{"age": 3}', "jpg": pets["cat/1.jpg"]}
    assert {samples[key]["cls"] for key in samples if key.startswith("dog/")} == {b"1"}
    exec(code[1], {})
    printed = capsys.readouterr().out
    assert "('cat', 'dog')" in printed
    assert "pets-train-000000.tar" in printed
    assert prepare(settings)["status"] == "reused"
