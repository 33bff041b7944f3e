"""`larder ls`, `show`, `diff`, `du` and `trace` of a dataset that has grown twice."""

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from catalog_lab import place_of
from pipeline_lab import Lab, directory_lab, images, png
from required import at_push

from larder.catalog.history import list_versions, short_ids
from larder.catalog.usage import usage, usage_lines, usage_of_all
from larder.cli.exit import run
from larder.cli.main import dispatch
from larder.disk import DRAFT_PREFIX
from larder.errors import ConfigError
from larder.versions import layout
from tests.support.errors import larder_error

LABELS = b"v/0 x\nv/1 x\nv/2 y\nv/3 y\n"


def text(number: int) -> bytes:
    return b"%d" % number * 300


@pytest.fixture(scope="module", params=["repack", *at_push("omit")])
def grown(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Lab, list[str]]:
    """Three versions: samples are added, changed and relabelled, then removed and moved."""
    objects = {f"{folder}/{n}.txt": text(n) for folder in "av" for n in range(4)}
    lab = directory_lab(
        tmp_path_factory.mktemp("grown"),
        objects | {"val.txt": LABELS},
        splits={"train": "a/**", "validation": "v/**"},
        labels={"from": "folder", "files": {"validation": "val.txt"}},
        growth={"removals": request.param},
        shards={"bytes": 3_000},
        cache=None,
    )
    versions = [lab.prepare()["version"]]
    relabelled = LABELS.replace(b"v/1 x", b"v/1 y")
    lab.add({"a/0.txt": text(10), "a/9.txt": text(9), "val.txt": relabelled})
    versions.append(lab.prepare()["version"])
    lab.remove("a/1.txt")
    splits = {"train": ["a/**", "v/2.*"], "validation": "v/**"}
    versions.append(lab.prepare(splits=splits)["version"])
    return lab, versions


def printed(lab: Lab, capsys: Any, *arguments: str, as_json: bool = True) -> Any:
    flags = ["--storage", str(lab.storage), *(["--json"] if as_json else [])]
    assert dispatch([*arguments, *flags]) == 0
    out = capsys.readouterr().out
    return json.loads(out) if as_json else out


def test_datasets_and_versions_are_listed(grown, capsys):
    lab, versions = grown
    (dataset,) = printed(lab, capsys, "ls")["datasets"]
    assert (dataset["dataset"], dataset["versions"], dataset["samples"]) == ("d", 3, 8)
    rows = printed(lab, capsys, "ls", "d")["versions"]
    assert [row["version"] for row in rows] == versions[::-1], "the newest first"
    assert [row["samples"] for row in rows] == [8, 9, 8]
    assert [list(row["tags"]) for row in rows] == [["latest"], [], []]
    assert rows[0]["tags"]["latest"] >= rows[0]["published"]
    assert [row["previous"] for row in rows] == [versions[1], versions[0], None]
    changes = [{kind: n for kind, n in row["changes"].items() if n} for row in rows]
    assert changes[0] == {"removed": 1, "moved": 1, "unchanged": 7}
    assert changes[1] == {"added": 1, "changed": 1, "relabelled": 1, "unchanged": 6}
    shown = printed(lab, capsys, "ls", "d", as_json=False).splitlines()
    assert shown[2].startswith(versions[2][:8])
    assert shown[2].endswith("latest  1 moved, 1 removed, 7 unchanged")


def test_a_version_without_its_document_or_with_a_damaged_one_stops_no_listing(grown, capsys):
    lab, versions = grown
    damaged = lab.folder / layout.version_key("f" * 32)
    damaged.parent.mkdir()
    damaged.write_text("{}")
    unfinished = lab.folder / layout.version_prefix("e" * 32) / "manifests/objects.parquet"
    unfinished.parent.mkdir(parents=True)
    unfinished.write_text("of a run that was stopped")
    try:
        rows = printed(lab, capsys, "ls", "d")["versions"]
    finally:
        damaged.unlink()
        unfinished.unlink()
    assert [row["version"] for row in rows] == ["f" * 32, *versions[::-1]]
    assert rows[0]["problem"] == "not a Larder document"


def test_a_version_is_shown_by_its_first_digits(grown, capsys):
    lab, versions = grown
    shown = printed(lab, capsys, "show", f"d@{versions[1][:8]}")
    assert shown["version"] == versions[1]
    assert shown["splits"]["train"]["samples"] == 5
    assert shown["classes"][0] == "a"
    assert shown["files"]["rows"]["count"] == len(shown["segments"])
    (record,) = shown["runs"]
    assert (record["before"], record["after"]) == (versions[0], versions[1])
    lines = printed(lab, capsys, "show", "d", as_json=False)
    assert lines.startswith(f"d version {versions[2]}")
    assert "1 moved, 1 removed, 7 unchanged" in lines


def test_two_versions_are_compared(grown, capsys):
    lab, versions = grown
    found = printed(lab, capsys, "diff", f"d@{versions[0]}", versions[1], "--keys")
    counts = {kind: count for kind, count in found["samples"].items() if count}
    assert counts == {"added": 1, "changed": 1, "relabelled": 1, "unchanged": 6}
    rows = [(row["kind"], row["key"], row["class_before"], row["class"]) for row in found["keys"]]
    assert rows == [
        ("added", "a/9", None, "a"),
        ("changed", "a/0", "a", "a"),
        ("relabelled", "v/1", "x", "y"),
    ]
    back = printed(lab, capsys, "diff", "d", f"d@{versions[0]}", "--keys", as_json=False)
    lines = back.splitlines()
    assert lines[0].endswith(": 1 added, 1 changed, 1 relabelled, 1 moved, 1 removed, 4 unchanged")
    assert "moved  validation  v/2  (from train)" in lines
    assert "relabelled  validation  v/1  (y to x)" in lines
    same = printed(lab, capsys, "diff", f"d@{versions[2]}")
    assert (sum(same["samples"].values()), same["samples"]["unchanged"], same["by"]) == (8, 8, [])


def test_bytes_are_counted(grown, capsys):
    lab, _ = grown
    (dataset,) = printed(lab, capsys, "du")["datasets"]
    usage = printed(lab, capsys, "du", "d")
    total = sum(path.stat().st_size for path in lab.folder.rglob("*") if path.is_file())
    assert sum(usage["bytes"].values()) == sum(dataset["bytes"].values()) == total
    assert printed(lab, capsys, "du", "d", as_json=False).startswith("d: ")


def test_a_sample_is_traced(grown, capsys, tmp_path):
    lab, versions = grown
    for key in ("a/0", "a/2", "a/9", "v/1", "v/2", "v/3"):
        found = printed(lab, capsys, "trace", "d", key)
        assert found["parts"][-1]["source"] == f"{key}.txt"
        shard = Path(found["shard"].removeprefix("file://")).read_bytes()
        part = found["parts"][-1]
        assert (
            shard[part["offset"] :][: part["bytes"]]
            == Path(str(lab.source), f"{key}.txt").read_bytes()
        )
    before = printed(lab, capsys, "trace", f"d@{versions[0]}", "a/1", "--to", str(tmp_path))
    assert (tmp_path / "1.txt").read_bytes() == text(1)
    assert before["written"] == [str(tmp_path / "1.cls"), str(tmp_path / "1.txt")]
    assert "from v/2.txt" in printed(lab, capsys, "trace", "d", "v/2", as_json=False)


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["ls", "e"], "version.missing", "the datasets are d"),
        (["ls", "d@latest"], "config.invalid_value", "without a path"),
        (["show", "d@latets"], "version.missing", "did you mean latest?"),
        (["diff", "d", "e@latest"], "config.invalid_flag", "d@VERSION"),
        (["trace", "d", "a/1"], "version.sample", "key"),
    ],
)
def test_what_is_not_there_is_refused(grown, arguments, code, hint):
    lab, _ = grown
    with pytest.raises(ConfigError) as caught:
        dispatch([*arguments, "--storage", str(lab.storage)])
    assert (caught.value.code, hint in caught.value.hint) == (code, True)


@pytest.mark.parametrize(
    ("url", "code"), [("s3://key:secretsecret@b/x", "secret"), ("ftp://b", "unsupported_url")]
)
def test_a_wrong_storage_is_refused_without_its_secrets(url, code):
    with larder_error(f"config.{code}", "--storage") as caught:
        dispatch(["ls", "--storage", url])
    assert "secretsecret" not in str(caught.value)


@pytest.mark.parametrize("arguments", [["ls"], ["du"], ["ls", "d"], ["show", "d"]])
def test_a_directory_that_does_not_exist_is_no_empty_storage(tmp_path, arguments, capsys):
    storage = tmp_path / "storage"
    with larder_error("store.missing", f"file://{storage}/"):
        dispatch([*arguments, "--storage", str(storage)])
    storage.mkdir()
    dispatch(["ls", "--storage", str(storage)])
    assert capsys.readouterr().out.startswith("no datasets")


def test_commands_read_the_storage_of_a_cluster(grown, capsys, tmp_path, monkeypatch):
    lab, _ = grown
    (tmp_path / "configs/clusters").mkdir(parents=True)
    cluster = tmp_path / "configs/clusters/near.yaml"
    cluster.write_text(f"name: near\nstorage: {{url: {lab.storage}}}\n")
    monkeypatch.chdir(tmp_path)
    assert run(lambda: dispatch(["ls", "--cluster", "near"]), json=False) == 0
    assert "d " in capsys.readouterr().out


def test_short_ids_tell_versions_apart():
    ids = ["a" * 32, "a" * 12 + "b" * 20, "c" * 32]
    assert list(short_ids(ids).values()) == ["a" * 13, "a" * 12 + "b", "c" * 13]


@pytest.fixture
def lab(tmp_path):
    """Two versions with caches, the second without validation; drafts of a killed run; a note."""
    lab = directory_lab(tmp_path, images("ac", 4), cache={"records": "encoded"})
    lab.prepare(splits={"train": "a/**", "validation": "c/**"})
    lab.add({"a/new.png": png(50)})
    lab.remove(*(f"c/{number:02}.png" for number in range(4)), "c/00.json")
    lab.prepare(splits={"train": "a/**", "validation": "c/**"}, growth={"removals": "omit"})
    segment = next((lab.folder / "segments").iterdir())
    for folder in (segment / "shards/train", lab.folder / "mirror/some"):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{DRAFT_PREFIX}{'0' * 24}").write_bytes(bytes(100))
    (segment / "notes.txt").write_text("of a user")
    return lab


def files(lab):
    """The size of every file that is not being written, by its path below the root."""
    paths = (path for path in lab.folder.rglob("*") if path.is_file())
    sizes = {os.path.relpath(path, lab.folder): path.stat().st_size for path in paths}
    return {name: size for name, size in sizes.items() if DRAFT_PREFIX not in name}


def own_bytes(lab):
    """By version, the bytes of the folders that it alone names: its own, segments and caches."""
    named = {}
    for path in lab.folder.glob("versions/*/version.json"):
        uses = [(use["id"], use["cache"]) for use in json.loads(path.read_bytes())["segments"]]
        folders = {f"versions/{path.parent.name}/", *(f"segments/{id_}/" for id_, _ in uses)}
        caches = {f"caches/{cache}/" for _, cache in uses if cache}
        named[path.parent.name] = folders, caches
    often = Counter(folder for folders, _ in named.values() for folder in folders)
    return {
        version: sum(
            size
            for name, size in files(lab).items()
            if any(name.startswith(folder) for folder in folders if often[folder] == 1)
            and ("caches/" not in name or any(cache in name for cache in caches))
        )
        for version, (folders, caches) in named.items()
    }


def test_every_byte_is_counted_once(lab):
    place = place_of(lab)
    counted, listed = usage(place), list_versions(place)["versions"]
    assert sum(counted["bytes"].values()) == sum(files(lab).values())
    assert counted["bytes"] == usage_of_all(place.cluster)["datasets"][0]["bytes"]
    assert counted["bytes"]["segments"] == sum(each["bytes"] for each in counted["segments"])
    own = {each["version"]: each["own_bytes"] for each in listed}
    rows = counted["versions"]
    assert list(own.items()) == [(each["version"], each["own_bytes"]) for each in rows]
    assert own == own_bytes(lab)
    assert all(each["own_bytes"] <= each["bytes"] for each in rows)


def test_a_damaged_version_stops_neither(lab):
    place = place_of(lab)
    before = usage(place)
    damaged = lab.folder / layout.version_key(before["versions"][0]["version"])
    damaged.write_bytes(damaged.read_bytes()[:-9])
    counted = usage(place)
    assert sum(counted["bytes"].values()) == sum(files(lab).values())
    assert counted["clean_bytes"] is None
    assert str(damaged) in counted["clean_problem"]
    assert "is refused" in usage_lines(counted)[-1]
    assert before["clean_problem"] is None
