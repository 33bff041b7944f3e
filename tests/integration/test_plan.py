"""What a plan says, as lines and as a document, and that the run says and refuses the same."""

import gc
import json
import re
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import webdataset as wds
from pipeline_lab import Lab, directory_lab, images, png, write

import larder
from larder.cli.prepare_command import PREPARE
from larder.config.load import load_template
from larder.errors import ConfigError
from larder.pipeline.planning.plan_report import plan_lines
from larder.pipeline.preparing import prepare
from larder.pipeline.run_report import run_lines
from larder.pipeline.settings import load_settings
from tests.support.runs import TEMPLATE, between, run_settings
from tests.support.stores import UnconditionalStore

REPOSITORY = Path(__file__).parents[2]
CONFIGS = REPOSITORY / "configs"
EIGHT = {**TEMPLATE, "resources": {"slots_per_trial": 8}}
RESNET50 = load_template(CONFIGS, "resnet50.yaml")
NO_SLOTS = {**TEMPLATE, "resources": {"slots_per_trial": 0}}


def lines(document: dict[str, Any]) -> list[str]:
    found = plan_lines(document)
    assert json.dumps(document, allow_nan=False)
    for line in found:
        assert len(line) <= 80 or " " not in line.strip(), line
    return found


def as_text(found: Iterable[str]) -> str:
    return " ".join(" ".join(found).split())


def text(document: dict[str, Any]) -> str:
    return as_text(lines(document))


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
WIDTHS = {"part": None, "columns": {"txt": "width"}}
SKIPPED = {"annotations": TEXTS, "missing": "skip"}
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
        ("few_shards", {}, {"template": RESNET50, "shards": {"bytes": 1}}, True),
        ("few_shards", {}, {"template": looped(num_workers=3), "shards": {"count_min": 2}}, True),
        ("few_shards", {}, {"template": EIGHT, "shards": {"count_min": 2}}, True),
        ("few_shards", {}, {"template": NO_SLOTS, "shards": {"count_min": 2}}, False),
        ("few_shards", {}, {"template": EIGHT, "shards": {"samples_per_shard": 1}}, False),
        ("few_shards", {}, {"template": EIGHT, "shards": {"count_min": 8}}, False),
        ("unused_entries", {"x.jsonl": ENTRIES}, boxed(TEXTS), True),
        ("unused_entries", {"x.jsonl": ENTRIES}, boxed(TEXTS, samples=SKIPPED), False),
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
        ("source_pixels", {"x.json": COCO}, boxed({**BOXES, **WIDTHS}, shards=RESIZED), False),
        ("source_pixels", {"x.jsonl": ENTRIES}, boxed(TEXTS, shards=RESIZED), False),
    ],
)
def test_a_plan_warns_only_with_a_reason(tmp_path, code, objects, fields, warned):
    lab = directory_lab(tmp_path, images() | objects, splits={"train": "*/**"})
    assert (code in warnings(lab.plan(**fields))) is warned


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


# The run

DOTS = {"a/img.v1.png": png(1), "a/img.v2.png": png(2)}


def messages(document: dict[str, Any], code: str) -> list[str]:
    return [each["message"] for each in document["warnings"] if each["code"] == code]


def test_a_run_reports_what_its_plan_warns_of(tmp_path):
    splits = {"train": "**", "validation": "nothing/**"}
    lab = directory_lab(tmp_path, images() | DOTS, splits=splits)
    planned = lab.plan()["warnings"]
    assert {"merged_samples", "empty_split"} <= {each["code"] for each in planned}
    document = lab.prepare()
    assert (document["status"], document["warnings"]) == ("built", planned)
    told = as_text(run_lines(document))
    assert all(f"warning {each['message']}" in told for each in planned)
    again = lab.prepare()
    assert (again["status"], "warnings" in again) == ("reused", False)
    assert "warning" not in as_text(run_lines(again))


def test_a_run_says_that_the_storage_ignores_conditions_and_plans_do_from_then_on(tmp_path):
    lab = directory_lab(tmp_path, images() | {"d/00.png": png(7), "d/01.png": png(8)})
    with between(UnconditionalStore):
        assert messages(lab.plan(), "unconditional_writes") == [], (
            "a plan writes nothing to find out"
        )
        assert not Path(str(lab.storage)).exists()
        (message,) = messages(lab.prepare(), "unconditional_writes")
        write(lab.source, {"a/01.png": png(70)})
        planned = lab.plan()
        assert messages(planned, "unconditional_writes") == [message]
        assert message in text(planned)
        assert message in as_text(run_lines(lab.prepare()))


@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_warnings_are_shown_on_stderr_without_a_summary(tmp_path, monkeypatch, capsys, flag):
    write(tmp_path / "source", {"1.txt": b"x", "img.v1.txt": b"y", "img.v2.txt": b"z"})
    monkeypatch.chdir(tmp_path)
    arguments = ["--dataset", "files", "--config-dir", str(CONFIGS), flag]
    for setting in ("source.url=source", "cluster.storage.url=local"):
        arguments += ["--set", setting]
    assert PREPARE.main(arguments) == 0
    told = capsys.readouterr()
    warnings = [line for line in told.err.splitlines() if line.startswith("warning[")]
    assert [line for line in warnings if line.startswith("warning[merged_samples]: ")]
    if flag == "--json":
        found = [
            f"warning[{each['code']}]: {each['message']}"
            for each in json.loads(told.out)["warnings"]
        ]
        assert found == warnings
    else:
        assert told.out == ""
    assert PREPARE.main(arguments) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_config_that_would_be_written_is_named(tmp_path):
    lab = directory_lab(tmp_path)
    (config,) = lab.prepare()["configs"]
    document = lab.plan()
    assert (document["status"], document["configs"]) == ("reused", [])

    other = {**TEMPLATE, "hyperparameters": {"lr": 1}}
    before = Path(config).read_bytes()
    assert lab.plan(template=other)["configs"] == [config]
    assert Path(config).read_bytes() == before

    shutil.rmtree(lab.output)
    document = lab.plan()
    assert (document["status"], document["configs"]) == ("reused", [config])
    assert not lab.output.exists()
    assert lab.prepare()["configs"] == [config]


def test_a_plan_refuses_what_the_run_refuses_of_an_existing_version(tmp_path):
    lab = directory_lab(tmp_path)
    lab.prepare()
    for more in (
        {"experiment": {"delivery": "bucket"}},
        {"template": {**TEMPLATE, "data": {"version": "mine"}}},
        {"template": {"name": "x"}},
    ):
        codes = []
        for command in (lab.plan, lab.prepare):
            with pytest.raises(ConfigError) as caught:
                command(**more)
            codes.append((caught.value.code, str(caught.value)))
        assert codes[0] == codes[1]


def test_classes_that_look_alike_or_have_no_samples_are_warned_of(tmp_path):
    keys = ["train/dog/1", "train/Dog/2", "train/caf\u00e9/3", "train/cafe\u0301/3"]
    keys += ["val/dog/5", "val/cat/6"]
    fields = {"splits": {"train": "train/**", "validation": "val/**"}, "validate": "none"}
    lab = directory_lab(tmp_path, {f"{key}.txt": b"1" for key in keys}, cache=None, **fields)
    plan = lab.plan()
    (pairs,) = messages(plan, "twin_classes")
    assert "'Dog' and 'dog'" in pairs
    assert "'cafe\\u0301' and 'caf\\xe9'" in pairs
    assert messages(plan, "two_forms")
    train, validation = messages(plan, "empty_class")
    assert "cat" in train
    assert "Dog" in validation
    include = ["train/[dD]og/*", "train/caf\u00e9/*", "val/**"]
    selected = replace(lab, source={"url": lab.source, "include": include})
    (message,) = messages(selected.plan(), "other_form")
    assert "cafe\\u0301" in message
    lab.prepare()
    (Path(lab.source) / "val/cat/6.txt").unlink()
    assert "no sample has the class cat" in messages(lab.plan(), "empty_class")[0]
    with pytest.raises(ConfigError, match="Unicode form"):
        lab.plan(labels={"from": "folder", "classes": ["Dog", "dog", "caf\u00e9"]})


def test_a_run_says_that_it_moved_the_tag_back(tmp_path):
    lab = directory_lab(tmp_path)
    first = lab.prepare()
    write(lab.source, {"a/99.png": png(9)})
    second = lab.prepare()
    assert (first["moved_from"], second["moved_from"]) == (None, first["version"])
    (Path(lab.source) / "a/99.png").unlink()
    back = lab.prepare()
    assert (back["status"], back["version"]) == ("reused", first["version"])
    assert back["moved_from"] == second["version"]
    assert second["version"] in as_text(run_lines(back))
    assert lab.prepare()["moved_from"] is None
