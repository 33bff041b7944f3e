"""Caches whose records a function of the user's makes of samples, in complete runs."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_lab import Lab, directory_lab, write
from pydantic import ValidationError
from verify_lab import verified

import larder
from larder.config.models.dataset import Cache
from larder.jobs.step_runner import InlineRunner
from larder.pipeline.planning.plan_report import plan_rows
from larder.pipeline.preparing import prepare
from larder.progress import StageTimes
from larder.samples import decoders
from tests.support.errors import larder_error

TEXTS = {f"{'ab'[n % 2]}/{n:02}.txt": b"word " * (n + 1) for n in range(12)}

MODULE = '''
"""Makes records."""

import os
import numpy as np

def words(samples, *, scale, shard_index=0, shards=1):
    for sample in samples:
        text = sample.parts["txt"].decode()
        yield {
            "words": np.arange(len(text.split()), dtype=np.int32) * scale,
            "about": {"text": text, "of": np.float32(sample.label), "shards": shards > 1},
        }

def one(samples):
    return ((np.ones(3, np.uint8), len(sample.parts["txt"])) for sample in samples)

def plain(samples):
    yield from (len(sample.parts["txt"]) for sample in samples)

def fewer(samples):
    yield next(samples).key

no_function = 1
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    folder = tmp_path / "code"
    folder.mkdir()
    (folder / "own_builder.py").write_text(MODULE)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    yield folder / "own_builder.py"
    sys.modules.pop("own_builder", None)
    decoders.builder_of.cache_clear()


def lab_of(folder: Path, function: str, **inputs: Any) -> Lab:
    cache = {"builder": f"own_builder:{function}", "builder_inputs": inputs}
    return directory_lab(folder, TEXTS, cache=cache)


def opened(lab: Lab, split: str = "train") -> Any:
    return larder.open(f"{lab.storage}/larder/d").cache(split, verify=True)


@pytest.mark.push
def test_a_builder_makes_the_records_of_a_version(module, tmp_path):
    lab = lab_of(tmp_path, "words", scale=2)
    plan = lab.plan()
    assert (plan["cache"], plan["cache_builder"]) == ("built", "own_builder:words")
    assert "by own_builder:words" in plan_rows(plan)["cache"]
    first = lab.prepare()
    cache = opened(lab)
    assert [field.name for field in cache.schema.fields] == [
        *("about.of", "about.shards", "about.text", "words", "key")
    ]
    samples = [*larder.open(f"{lab.storage}/larder/d").samples("train")]
    assert [record["key"] for record in cache] == [sample.key for sample in samples]
    for record, sample in zip(cache, samples, strict=True):
        text = sample.parts["txt"]
        assert record["about.text"].tobytes() == text
        assert record["words"].tolist() == [*range(0, 2 * len(text.split()), 2)]
        assert record["about.of"] == sample.label
    batch = next(iter(larder.open(f"{lab.storage}/larder/d").loader("train", batch_size=4)))
    assert batch["about.of"].dtype == np.float32
    lab.only()
    assert lab.prepare()["status"] == "reused"
    write(lab.source, {"a/50.txt": b"of another segment"})
    lab.prepare()
    assert len(lab.files("segments/*/caches/*/train-*.mdb")) == 2
    assert len(opened(lab)) == len(samples) + 1
    lab.check()
    assert first["status"] == "built"


@pytest.mark.push
@pytest.mark.parametrize("what", ["inputs", "module", "function"])
def test_its_module_and_its_inputs_are_its_identity(what, module, tmp_path):
    lab = lab_of(tmp_path, "plain")
    first = lab.prepare()
    cache = dict(lab.fields["cache"])
    if what == "module":
        module.write_text(f"{MODULE}\n# changed\n")
        sys.modules.pop("own_builder")
        decoders.builder_of.cache_clear()
    elif what == "function":
        cache["builder"] = "own_builder:one"
    else:
        cache |= {"builder": "own_builder:words", "builder_inputs": {"scale": 1}}
    second = lab.prepare(cache=cache)
    assert second["status"] == "built"
    assert second["version"] != first["version"]
    assert len(lab.files("segments/*/segment.json")) == 1, "shards are as they were"
    if what == "function":
        assert opened(lab).batch([0, 1])["0"].shape == (2, 3)


@pytest.mark.push
def test_it_is_divided_among_processes_if_it_takes_shards(module, tmp_path, started):
    lab = lab_of(tmp_path, "words", scale=2)
    lab.fields["cluster"] = {"runner": {"workers": 2}}
    prepare(lab.settings(), InlineRunner(2, StageTimes()))
    assert started
    keys = [sample.key for sample in larder.open(f"{lab.storage}/larder/d").samples("train")]
    assert [record["key"] for record in opened(lab)] == keys
    assert all(record["about.shards"] for record in opened(lab))
    lab.only()
    alone = len(started)
    lab.prepare(cache={"builder": "own_builder:plain"})
    assert len(started) == alone


def test_elements_that_are_no_records_are_refused(module, tmp_path):
    lab = lab_of(tmp_path, "fewer")
    with larder_error("cache.schema"):
        lab.prepare()
    assert not lab.files("versions/*")


@pytest.mark.parametrize(
    "cache",
    [
        {"builder": "own_builder:absent"},
        {"builder": "absent_module:words"},
        {"builder": "own_builder:no_function"},
        {"builder": "own_builder:words"},
        {"builder": "own_builder:plain", "builder_inputs": {"a": 1}},
        {"builder": "builtins:len"},
    ],
    ids=str,
)
def test_a_builder_that_cannot_be_called_ends_the_plan(cache, module, tmp_path):
    lab = directory_lab(tmp_path, TEXTS)
    with larder_error("config.invalid_value") as raised:
        lab.plan(cache=cache)
    assert "cache.builder" in raised.value.where


@pytest.mark.parametrize(
    "cache",
    [
        {"builder": "own_builder"},
        {"builder": "own_builder:plain", "records": "decoded"},
        {"builder_inputs": {"a": 1}},
        {"builder": "own_builder:plain", "builder_inputs": {"a": [1]}},
        {"builder": "own_builder:plain", "builder_inputs": {"a": float("nan")}},
        {"builder": "own_builder:plain", "builder_inputs": {"a": "s3://key:secret@bucket/"}},
    ],
    ids=str,
)
def test_what_the_file_may_not_say_of_a_builder(cache):
    with pytest.raises(ValidationError):
        Cache.model_validate(cache)


@pytest.mark.push
def test_a_cache_that_a_builder_made_is_repaired(module, tmp_path):
    lab = lab_of(tmp_path, "words", scale=2)
    lab.prepare()
    path = lab.file("segments/*/caches/*/train-*.mdb")
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    assert verified(lab)["status"] == "damaged"
    assert verified(lab, repair=True)["status"] == "repaired"
    assert path.read_bytes() == data
    path.write_bytes(data[:-1])
    module.write_text(f"{MODULE}\n# changed\n")
    sys.modules.pop("own_builder")
    decoders.builder_of.cache_clear()
    (finding,) = verified(lab, repair=True)["findings"]
    assert not finding["repair"]["done"]
    assert "makes another cache now" in finding["repair"]["message"]
