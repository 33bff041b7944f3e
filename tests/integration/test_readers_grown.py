"""What training sees of versions that grew: several segments, and samples that are left out."""

import gc
import re
from pathlib import Path
from typing import Any

import pytest
import webdataset as wds
from pipeline_lab import directory_lab, images, opened, png
from ruamel.yaml import YAML
from webdataset.shardlists import expand_urls

import larder
from tests.support.checker import Published
from tests.support.errors import larder_error

pytestmark = pytest.mark.push

GUIDE = (Path(__file__).parents[2] / "docs/how-to/experiment-configs.md").read_text()
SPLITS = {"train": ["a/**", "b/**"], "validation": "c/**"}
GONE = ("a/03.png", "b/05.png", "c/00.png", "c/00.json")
NEW = {"a/zz.png": png(5), "b/01.png": png(999)}


def emitted(document: dict[str, Any]) -> dict[str, Any]:
    (path,) = document["configs"]
    data: dict[str, Any] = YAML(typ="safe").load(Path(path).read_text())["data"]
    return data


def keys_of(published: Published, split: str) -> list[str]:
    return [sample.key for sample in published.samples[split]]


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset's own
def test_packed_again_they_are_read_by_the_patterns_of_the_config(tmp_path):
    fields = {"growth": {"removals": "repack"}, "shards": {"bytes": 3_000}, "splits": SPLITS}
    lab = directory_lab(tmp_path / "team data", images("abc", each=8), **fields)
    lab.prepare()
    lab.remove(*GONE)
    lab.add(NEW)
    document = lab.prepare()
    published = lab.check()[document["version"]]
    config, data = emitted(document), larder.open(f"{lab.storage}/larder/d")
    assert "::" in config["splits"]["train"]["pattern"]
    for split in SPLITS:
        for shards in (config["splits"][split]["pattern"], data.shards(split)):
            read = wds.WebDataset(shards, shardshuffle=False)
            assert [sample["__key__"] for sample in read] == keys_of(published, split)
        with data.cache(split) as cache:
            assert [record["key"] for record in cache] == keys_of(published, split)
    train = documented("def shards_of", data=config, webdataset=wds)["train"]
    assert {sample["__key__"] for sample in train} == set(keys_of(published, "train"))
    gc.collect()  # while the warning is ignored


MANY = 210


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset's own
def test_many_patterns_become_a_list_and_the_docs_read_it(tmp_path):
    fields = {"splits": {"my-train": "**"}, "cache": None, "shards": {"bytes": 1}}
    objects = {f"{n:04}.txt": b"x" for n in range(2 * MANY)}
    lab = directory_lab(tmp_path, objects, labels=None, validate="none", **fields)
    lab.prepare()
    lab.remove(*list(objects)[::2])
    document = lab.prepare()
    published = lab.check()[document["version"]]
    assert len(published.version.splits["my-train"].patterns) == MANY
    config = emitted(document)
    facts = config["splits"]["my-train"]
    assert "pattern" not in facts
    assert Path(facts["list"]).is_relative_to(config["location"])
    lines = Path(facts["list"]).read_text().splitlines()
    assert lines == list(published.shards)
    assert larder.open(config["location"]).shards("my-train") == [
        f"{config['path']}/{line}" for line in lines
    ]
    data = {**config, "splits": {"train": facts}}
    train = documented("def shards_of", data=data, webdataset=wds)["train"]
    assert {sample["__key__"] for sample in train} == set(keys_of(published, "my-train"))
    gc.collect()  # while the warning is ignored
    assert lab.prepare()["status"] == "reused"


def documented(name: str, **given: Any) -> dict[str, Any]:
    """What the code of the guide with that name in it defines, if it is run."""
    (code,) = (
        code for code in re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL) if name in code
    )
    exec(code, given)
    return given


def test_the_docs_read_lists_in_a_bucket(s3_env):
    s3_env.create_bucket("lists")
    keys = [f"segments/s/shards/train/d-train-{n:06}.tar" for n in range(3)]
    name = "versions/v/lists/train-0123456789abcdef.txt"
    with opened("s3://lists/team/larder/d") as root:
        root.put(name, "".join(f"{key}\n" for key in keys).encode())
        facts = {"train": {"list": f"s3://lists/team/larder/d/{name}"}}
        config = {"bucket": "lists", "prefix": "team/larder/d/", "splits": facts}
        commands = documented("def commands_of")["commands_of"](config, "train")
    assert commands == [f"pipe:aws s3 cp s3://lists/team/larder/d/{key} -" for key in keys]
    braces = {"train": {"pattern": "s3://lists/a/{0..1}.tar::s3://lists/b.tar"}}
    commands = documented("def commands_of")["commands_of"]({**config, "splits": braces}, "train")
    assert expand_urls(commands) == [
        "pipe:aws s3 cp 's3://lists/a/0.tar' -",
        "pipe:aws s3 cp 's3://lists/a/1.tar' -",
        "pipe:aws s3 cp s3://lists/b.tar -",
    ]


def test_a_split_without_a_sample_left_has_no_cache_file(tmp_path):
    lab = directory_lab(tmp_path, images("abc", each=8), splits=SPLITS)
    lab.prepare()
    for path in Path(str(lab.source), "c").iterdir():
        path.unlink()
    document = lab.prepare()
    assert document["segments"] == {"total": 1, "new": 0, "omitted": 8}
    version = lab.check()[document["version"]].version
    assert version.cache is not None
    assert set(version.cache.splits) == {"train"}
    data = larder.open(f"{lab.storage}/larder/d")
    assert list(data.samples("validation")) == data.shards("validation") == []
    with larder_error("cache.missing"):
        data.cache("validation")
