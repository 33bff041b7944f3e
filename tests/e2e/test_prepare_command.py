"""``python -m flows.prepare`` as a user runs it: what it prints, what it leaves, how it ends."""

import re

import pytest

from larder.cli.display import STAGES
from tests.support.commands import Finished, Workplace

IMPORTED = re.compile(r"import time:.*\| +(\S+)")
SMALL = ("--set", "shards.bytes=400 kB", "--set", "cluster.runner.batch_bytes=800 kB")
SMALL += ("--set", "mirror=true")
PROGRESS = re.compile(rf"(run|{'|'.join(STAGES)}): [a-z\d]")
LARDER = ("-m", "larder.cli.main", "prepare")


def imported(done: Finished) -> set[str]:
    """The packages that a command run with ``-X importtime`` imported."""
    return {found[1].partition(".")[0] for found in IMPORTED.finditer(done.err)}


def timed(place: Workplace, *arguments: str) -> Finished:
    return place.run(*arguments, python=("-X", "importtime", "-m", "flows.prepare"))


def test_it_writes_nothing_and_does_without_prefect(place):
    before = place.files()
    done = timed(place, "--dataset", "imagenet", "--plan", *SMALL)
    assert done.status == 0, done.err
    assert "prefect" not in imported(done)
    assert "plan for imagenet" in done.out
    assert "60 objects" in done.out
    # The temporary directory itself changed, and is empty again.
    after = place.files()
    assert after.keys() == before.keys()
    assert {name for name in after if after[name] != before[name]} <= {"tmp"}


@pytest.mark.push
def test_again_nothing_is_written_and_prefect_not_imported(place):
    first = place.run("--dataset", "imagenet", "--json", *SMALL, python=LARDER)
    assert first.status == 0, first.err
    before = place.files()
    done = timed(place, "--dataset", "imagenet", "--json", *SMALL)
    assert done.status == 0, done.err
    assert "prefect" not in imported(done)
    assert "larder.pipeline.planned_build" not in done.err
    assert done.document["status"] == "reused"
    for field in ("version", "digest", "inputs", "location", "objects", "configs"):
        assert done.document[field] == first.document[field]
    after = place.files()
    assert {name for name in after if after[name] != before.get(name)} <= {"tmp"}


@pytest.mark.push
def test_a_missing_prefect_server(place):
    done = place.run("--dataset", "imagenet", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (done.status, done.out) == (1, "")
    (line,) = [line for line in done.err.splitlines() if not PROGRESS.match(line)]
    assert line.startswith("error[run.server]: ")
    assert "127.0.0.1:9" in line


@pytest.mark.push
def test_a_server_that_cannot_start_says_why(place):
    home = place.folder / "home/.prefect"
    home.write_text("in the way")
    done = place.run("--dataset", "imagenet", "--json", *SMALL)
    assert done.status == 1
    assert done.document["error"]["code"] == "run.server"
    assert "File exists" in done.document["error"]["message"]
    assert "Traceback" not in done.err
