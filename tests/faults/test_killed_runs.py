"""Runs that are killed with SIGKILL, in separate processes, and concurrent runs."""

import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from larder.store import open_store
from larder.versions.tags import read_tag
from tests.support.checker import Published, check_all

RUN = """
import json, signal, sys
from dataclasses import replace
from pathlib import Path
from larder.pipeline.prepare import prepare
from tests.support.runs import between, run_settings
from tests.support.stores import Signal, StoppingStore

folder, after, compact = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "compact"
settings = run_settings(
    folder / "source", folder / "local", folder / "out",
    labels={"from": "folder"}, shards={"bytes": 8_000}, validate="decode", mirror=True,
    cache={"records": "decoded"},
    cluster={"runner": {"workers": 2, "batch_bytes": 12_000}},
)
stop = Signal(after, signal.SIGKILL)
with between(lambda store: StoppingStore(store, stop)):
    document = prepare(replace(settings, compact=compact))
methods, keys = ([write[place] for write in stop.writes] for place in (0, 1))
print(json.dumps({**document, "methods": methods, "writes": keys}))
"""


def start(folder: Path, after: int = 0, what: str = "prepare") -> subprocess.Popen[str]:
    """A run that is killed at a write, counted from 1; ``what``: prepare or compact."""
    command = [sys.executable, "-c", RUN, str(folder), str(after), what]
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )


def left_behind(folder: Path) -> list[Path]:
    """Temporary files and folders, but for the empty lock files of directories."""
    found = folder.rglob(".larder-tmp-*")
    return [path for path in found if path.name != ".larder-tmp-lock"]


def age(folder: Path) -> list[Path]:
    """Make what was left behind older than a day, and return it."""
    left = left_behind(folder)
    for path in left:
        for each in (*path.rglob("*"), path):
            os.utime(each, (0, 0))
    return left


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    document: dict[str, Any] = json.loads(out)
    return document


def fill(folder: Path) -> None:
    for number in range(12):
        path = folder / "source" / "abc"[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image(number))


def image(number: int) -> bytes:
    pixels = random.Random(number).randbytes(3 * 9 * 7)
    target = io.BytesIO()
    Image.frombytes("RGB", (9, 7), pixels).save(target, "PNG")
    return target.getvalue()


def published(folder: Path) -> dict[str, Published]:
    return check_all(open_store(str(folder / "local" / "larder" / "d")))


def shards(found: Published) -> dict[str, str]:
    return {path.rpartition("/")[2]: digest for path, digest in found.shards.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, str]]:
    """The document of an undisturbed run, and the sha256 of its shards."""
    folder = tmp_path_factory.mktemp("undisturbed")
    fill(folder)
    document = finished(start(folder))
    (found,) = published(folder).values()
    return document, shards(found)


@pytest.mark.parametrize("at", ["mirror/c/", "/shards/train/", "/index/samples", "version.json"])
@pytest.mark.exhaustive(after=2)
def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path, undisturbed, at):
    document, expected = undisturbed
    fill(tmp_path)
    place = next(number for number, key in enumerate(document["writes"], 1) if at in key)
    killed = start(tmp_path, after=place)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    assert published(tmp_path) == {}
    age(tmp_path)
    again = finished(start(tmp_path))
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert again["digest"] == document["digest"]
    (found,) = published(tmp_path).values()
    assert shards(found) == expected
    if at in ("/index/samples", "version.json"):
        assert again["copied"]["count"] == 0
        assert again["shards"]["reused"] == len(expected)


def grow(folder: Path) -> None:
    """One sample more, one changed, one removed."""
    source = folder / "source"
    (source / "d").mkdir()
    (source / "d" / "20.png").write_bytes(image(20))
    (source / "a" / "00.png").write_bytes(image(21))
    (source / "b" / "04.png").unlink()


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("what", "at"),
    [
        ("prepare", "/shards/train/"),
        ("prepare", "/caches/"),
        ("compact", "/index/samples"),
        ("compact", "latest.json"),
    ],
)
def test_a_growth_or_compaction_that_was_killed_is_finished_by_the_next(tmp_path, what, at):
    fill(tmp_path)
    first = finished(start(tmp_path))["version"]
    grow(tmp_path)
    if what == "compact":
        first = finished(start(tmp_path))["version"]
    before = published(tmp_path)
    whole = tmp_path / "whole"
    shutil.copytree(tmp_path / "local", whole / "local")
    (whole / "source").symlink_to(tmp_path / "source")
    document = finished(start(whole, what=what))
    expected = published(whole)
    new = document["version"]
    assert set(expected) == {*before, new}

    writes = document["writes"]
    place = next(number for number, key in enumerate(writes, 1) if at in key)
    killed = start(tmp_path, after=place, what=what)
    killed.communicate()
    assert killed.returncode == -signal.SIGKILL
    left = published(tmp_path)
    assert set(before) <= set(left) <= {*before, new}
    for version, found in before.items():
        assert left[version].shards == found.shards
    assert tag(tmp_path) == first
    age(tmp_path)
    again = finished(start(tmp_path, what=what))
    assert left_behind(tmp_path) == []
    assert (again["version"], again["digest"]) == (new, document["digest"])
    found = published(tmp_path)
    assert found[new].shards == expected[new].shards
    assert found[new].samples == expected[new].samples
    assert tag(tmp_path) == new
    if at in ("/index/samples", "/caches/", "latest.json"):
        assert [key for key in again["writes"] if "/shards/" in key and "/work/" not in key] == []
        assert again["copied"]["count"] == 0


def tag(folder: Path) -> str | None:
    found = read_tag(open_store(str(folder / "local" / "larder" / "d")), "latest")
    return found.version if found else None


@pytest.mark.parametrize(
    ("method", "at", "kinds"),
    [
        ("commit", "shards/train/d-train-000001.tar", {"draft"}),
        ("upload", "/caches/", {"workshop"}),
        ("upload", "/index/", {"workshop"}),
    ],
)
@pytest.mark.parametrize("changed", [False, True])
@pytest.mark.exhaustive
def test_the_next_run_sweeps_what_a_killed_run_left(
    tmp_path, undisturbed, method, at, kinds, changed
):
    """In the system's directory for temporary files and in the storage."""
    document, _ = undisturbed
    writes = zip(document["methods"], document["writes"], strict=True)
    place = next(
        number for number, (how, key) in enumerate(writes, 1) if how == method and at in key
    )
    # Two workers do not always write in the same order: the run is killed until it was that write.
    for attempt in range(20):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        fill(folder)
        killed = start(folder, after=place)
        killed.communicate()
        assert killed.returncode == -signal.SIGKILL
        left = age(folder)
        if {path.name.split("-")[2] for path in left} >= kinds:
            break
    assert {path.name.split("-")[2] for path in left} >= kinds
    if changed and "draft" not in kinds:  # the draft of an object that is not written again stays
        (folder / "source" / "a" / "00.png").write_bytes(
            (folder / "source" / "b" / "01.png").read_bytes()
        )
    finished(start(folder))
    assert left_behind(folder) == []
    assert list((folder / "tmp").iterdir()) == []
    published(folder)


@pytest.mark.exhaustive
def test_processes_at_once_end_with_one_version_and_sweep_nothing_of_each_other(
    tmp_path, undisturbed
):
    """Each of them looks for what others left."""
    document, expected = undisturbed
    fill(tmp_path)
    for each in [start(tmp_path) for _ in range(3)]:
        assert finished(each)["digest"] == document["digest"]
    assert left_behind(tmp_path) == []
    (found,) = published(tmp_path).values()
    assert shards(found) == expected
