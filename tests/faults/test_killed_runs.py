"""Runs that are killed with SIGKILL, in separate processes, and concurrent runs."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import png
from required import at_night

from larder.store import open_store
from tests.support.checker import Published, check_all

RUN = """
import json, sys
from pathlib import Path
from larder.pipeline.preparing import prepare
from tests.support.runs import between, run_settings
from tests.support.stores import Signal, StoppingStore

folder, after, number = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
settings = run_settings(
    folder / "source", folder / "local", folder / "out",
    labels={"from": "folder"}, shards={"bytes": 4_000, "images": {"resize": 16}},
    validate="decode", mirror=True, cache={"records": "decoded"},
    cluster={"runner": {"workers": 2, "batch_bytes": 12_000}},
)
stop = Signal(after, number)
with between(lambda store: StoppingStore(store, stop)):
    document = prepare(settings)
print(json.dumps({**document, "writes": [key for _, key in stop.writes]}))
"""


def start(folder: Path, after: int = 0, number: int = signal.SIGKILL) -> subprocess.Popen[str]:
    """A run that gets a signal at a write, counted from 1.

    It has ended only once the processes that transform images have: they have the same stderr.
    """
    command = [sys.executable, "-c", RUN, str(folder), str(after), str(int(number))]
    temporary = folder / "tmp"
    temporary.mkdir(exist_ok=True)
    environment = {**os.environ, "TMPDIR": str(temporary)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)


def left_behind(folder: Path) -> list[Path]:
    """Temporary files and folders, but for the empty lock files of directories."""
    found = folder.rglob(".larder-tmp-*")
    return [path for path in found if path.name != ".larder-tmp-lock"]


def age(folder: Path) -> None:
    """Make what was left behind older than a day.

    What is left in a segment is removed at once, by the run that completes it.
    """
    for path in left_behind(folder):
        if "segments" not in path.parts:
            for each in (*path.rglob("*"), path):
                os.utime(each, (0, 0))


def finished(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    document: dict[str, Any] = json.loads(out)
    return document


def fill(folder: Path) -> None:
    for number in range(12):
        path = folder / "source" / "abc"[number % 3] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))


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


@pytest.mark.push
@pytest.mark.parametrize(
    ("at", "number"),
    [
        ("mirror/c/", signal.SIGKILL),
        ("/shards/train/", signal.SIGKILL),
        ("/shards/train/", signal.SIGINT),
        ("version.json", signal.SIGKILL),
        *at_night(("/shards/train/", signal.SIGTERM), ("/index/sources", signal.SIGKILL)),
    ],
)
def test_a_run_that_was_killed_is_finished_by_the_next(tmp_path, undisturbed, at, number):
    document, expected = undisturbed
    fill(tmp_path)
    place = next(number for number, key in enumerate(document["writes"], 1) if at in key)
    killed = start(tmp_path, after=place, number=number)
    killed.communicate()
    assert killed.returncode == -number
    assert published(tmp_path) == {}
    age(tmp_path)
    again = finished(start(tmp_path))
    assert left_behind(tmp_path) == []
    assert list((tmp_path / "tmp").iterdir()) == []
    assert again["digest"] == document["digest"]
    (found,) = published(tmp_path).values()
    assert shards(found) == expected
    if at in ("/index/sources", "version.json"):
        assert again["copied"]["count"] == 0
        assert again["shards"]["reused"] == len(expected)


@pytest.mark.push
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
