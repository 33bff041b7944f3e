"""`larder ls` and `larder du` count every byte of a dataset once, and agree."""

import json
import os
from collections import Counter

import pytest
from catalog_lab import place_of
from pipeline_lab import directory_lab, images, png

from larder.catalog.history import list_versions
from larder.catalog.usage import usage, usage_lines, usage_of_all
from larder.disk import DRAFT_PREFIX
from larder.versions import layout


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
        (folder / f"{DRAFT_PREFIX}{'0' * 16}").write_bytes(bytes(100))
    (segment / "notes.txt").write_text("of a user")
    return lab


def files(lab):
    """The size of every file, by its path below the root."""
    paths = (path for path in lab.folder.rglob("*") if path.is_file())
    return {os.path.relpath(path, lab.folder): path.stat().st_size for path in paths}


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
            and DRAFT_PREFIX not in name
            and ("caches/" not in name or any(cache in name for cache in caches))
        )
        for version, (folders, caches) in named.items()
    }


def test_every_byte_is_counted_once(lab):
    place = place_of(lab)
    counted, listed = usage(place), list_versions(place)["versions"]
    assert sum(counted["bytes"].values()) == sum(files(lab).values())
    assert counted["bytes"]["drafts"] == 200
    assert counted["bytes"] == usage_of_all(place.cluster)["datasets"][0]["bytes"]
    assert counted["bytes"]["segments"] == sum(each["bytes"] for each in counted["segments"])
    own = {each["version"]: each["own_bytes"] for each in listed}
    assert own == {each["version"]: each["own_bytes"] for each in counted["versions"]}
    assert own == own_bytes(lab)


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
