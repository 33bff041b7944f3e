"""A run also reports the warnings of its plan, and a plan refuses what the run would refuse."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import directory_lab, images, png, write

from larder.cli.prepare import PREPARE
from larder.errors import ConfigError
from larder.pipeline.planning.plan_report import plan_lines
from larder.pipeline.run_report import run_lines
from tests.support.runs import TEMPLATE, between
from tests.support.stores import UnconditionalStore

CONFIGS = Path(__file__).parents[2] / "configs"
DOTS = {"a/img.v1.png": png(1), "a/img.v2.png": png(2)}


def as_text(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


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
        assert message in as_text(plan_lines(planned))
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
