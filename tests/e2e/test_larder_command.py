"""The contract of both ways to call a command: the same documents, lines and exit statuses.

And what ``larder prepare`` does by itself: run in its own process, and stop when it is asked to.
"""

import json
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from larder.cli.display import STAGES
from tests.support.commands import Finished, Workplace
from tests.support.prefect_server import PrefectServer

LARDER = ("-m", "larder.cli.main", "prepare")
FLOW = ("-m", "flows.prepare")
IMAGENET = ("--dataset", "imagenet")
SMALL = ("--set", "shards.bytes=400 kB", "--set", "cluster.runner.batch_bytes=800 kB")
SMALL += ("--set", "mirror=true")
FEW = (*IMAGENET, "--set", "cluster.runner.workers=1", "--set", "shards.bytes=100 kB")
FEW += ("--set", "cluster.runner.batch_bytes=200 kB", "--set", "mirror=true")
LINE = "error[run.interrupted]: interrupted; run the same command again to continue"
SECONDS = re.compile(r"\bin (\d+ min )?[\d.]+ s\b|(?<=  time     about )[\d.]+ s")

SAME = [
    ["--help"],
    [*IMAGENET, "--plan", "--json", "--quiet", *SMALL],
    ["--dataset", "imagenett", "--json"],
]


def lines(text: str, way: tuple[str, ...]) -> list[str]:
    """What was printed, without seconds, without what only Prefect has, and by one name."""
    prog = "larder prepare" if way == LARDER else "python -m flows.prepare"
    found = [SECONDS.sub("in N s", line.replace(prog, "PROG")) for line in text.splitlines()]
    return [line for line in found if not line.startswith(("prefect: ", "run: "))]


def words(text: str, way: tuple[str, ...]) -> list[str]:
    """The same for help, whose lines break elsewhere where the name is longer."""
    return " ".join(lines(text, way)).split()


def untimed(document: dict[str, Any]) -> dict[str, Any]:
    """A document without what may differ between two runs of the same."""
    stages = document.get("stages", {})
    kept = {
        name: {key: value for key, value in stage.items() if key != "seconds"}
        for name, stage in stages.items()
        if name != "prefect"
    }
    return {**document, "seconds": None, "stages": kept}


def assert_same(one: Finished, other: Finished, *, document: bool) -> None:
    assert one.status == other.status, (one.err, other.err)
    if document:
        assert untimed(one.document) == untimed(other.document)
        assert list(one.document) == list(other.document)
        assert list(untimed(one.document)["stages"]) == list(untimed(other.document)["stages"])
    else:
        assert words(one.out, LARDER) == words(other.out, FLOW)
    assert lines(one.err, LARDER) == lines(other.err, FLOW)


@pytest.mark.parametrize("arguments", SAME, ids=" ".join)
def test_both_answer_the_same(place, arguments):
    both = [place.start(*arguments, python=way) for way in (LARDER, FLOW)]
    one, other = (running.wait() for running in both)
    assert_same(one, other, document="--json" in arguments)


@pytest.mark.push
def test_skipped_samples_are_always_reported(place, own_source):
    folder = own_source(place)
    bad = sorted(folder.glob("train/*/*.JPEG"))[:12]
    for path in bad:
        path.write_bytes(b"no image")
    skipping = (*IMAGENET, "--set", "on_bad_sample=skip", *SMALL)
    done = place.run(*skipping, "--quiet", python=LARDER)
    assert (done.status, done.out) == (0, ""), done.err
    shown = done.err.splitlines()
    *told, more = [line for line in shown if not line.startswith("warning[")]
    assert len(told) + 1 < len(shown)
    named = [re.match(r"skipped\[sample.undecodable\]: (\S+): ", line) for line in told]
    keys = {match[1] for match in named if match}
    assert len(told) == len(keys) == 10
    assert keys <= {path.relative_to(folder).as_posix() for path in bad}
    assert more == "and 2 more (--json lists them)"
    done = place.run(*skipping, "--quiet", python=LARDER)
    assert (done.status, done.out) == (0, "")
    assert done.err == "skipped: 12, when this version was built\n"


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, source: Path, prefect_server: PrefectServer
) -> tuple[Workplace, Finished, Finished]:
    """What both ways print of a first run in the same place; that of the flow is left there."""
    folder, url = tmp_path_factory.mktemp("both"), prefect_server.url
    place = Workplace(folder, IMAGENET_SOURCE=str(source), PREFECT_API_URL=url)
    one = place.run(*IMAGENET, "--json", *SMALL, python=("-X", "importtime", *LARDER))
    kept = snapshot(place)
    shutil.rmtree(place.folder / "data")
    shutil.rmtree(place.folder / "out")
    other = place.run(*IMAGENET, "--json", *SMALL, python=FLOW)
    assert snapshot(place) == kept
    return place, one, other


def snapshot(place: Workplace) -> dict[str, bytes]:
    """Published bytes by path, but for Parquet, whose names carry their digest, and receipts."""
    found = {}
    for top in ("data/local/larder/imagenet/segments", "out"):
        for path in (place.folder / top).rglob("*"):
            if path.suffix in (".tar", ".mdb", ".yaml"):
                found[str(path.relative_to(place.folder))] = path.read_bytes()
    assert found
    return found


@pytest.mark.push
class TestBuilt:
    def test_both_build_the_same_and_say_so(self, built):
        _, one, other = built
        imports = [line for line in one.err.splitlines() if line.startswith("import time:")]
        assert imports
        assert not [line for line in imports if re.search(r"\| +(prefect|flows|tasks)\b", line)]
        err = "\n".join(line for line in one.err.splitlines() if line not in imports)
        assert_same(Finished(one.status, one.out, err), other, document=True)
        assert one.document["status"] == "built"
        stages = one.document["stages"]
        order = ["inventory", "plan", "mirror", "shard", "index"]
        order += ["cache", "publish", "emit", "card"]
        assert (list(stages), list(other.document["stages"])) == (order, ["prefect", *order])
        assert {stages[name]["objects"] for name in ("inventory", *order[2:4], "cache")} == {60}

    def test_both_reuse_what_the_other_built(self, built):
        place, first, _ = built
        for flags in (["--json"], []):
            ways = [place.start(*IMAGENET, *flags, *SMALL, python=way) for way in (LARDER, FLOW)]
            both = [running.wait() for running in ways]
            assert_same(*both, document="--json" in flags)
            if flags == ["--json"]:
                assert both[0].document["status"] == "reused"
                assert both[0].document["version"] == first.document["version"]
                assert list(both[0].document["stages"]) == ["inventory", "emit"]


@pytest.mark.push
class TestInterrupted:
    def test_larder_stops_between_two_objects_and_continues(self, place):
        running = place.start(*FEW, "--json", python=LARDER)
        running.read_until("mirror: started")
        running.send(signal.SIGTERM)
        done = running.wait()
        assert done.status == 130, done.err
        assert done.document["error"]["code"] == "run.interrupted"
        assert done.err.splitlines()[-1] == LINE
        assert "Traceback" not in done.err
        assert list(place.temporary.iterdir()) == []
        assert not list(place.storage.glob("larder/imagenet/versions/*/version.json"))
        done = place.run(*FEW, "--json", python=LARDER)
        assert (done.status, done.document["status"]) == (0, "built"), done.err

    @pytest.mark.parametrize("way", [LARDER, FLOW], ids=["larder", "flow"])
    def test_a_signal_while_modules_are_imported(self, place, way):
        """One at some imports of the command's own, from the first to the last."""
        script = """
import os, runpy, signal, sys
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ.get("INTERRUPT_AT"):
            del os.environ["INTERRUPT_AT"]
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
name, sys.argv[1:] = sys.argv[1], sys.argv[2:]
runpy.run_module(name, run_name="__main__", alter_sys=True)
"""
        for name in ("json", "pydantic", "larder.jobs.step_runner"):
            arguments = (*way[1:], *IMAGENET, "--json")
            done = place.run(*arguments, python=("-c", script), INTERRUPT_AT=name)
            assert (done.status, done.err.splitlines()) == (130, [LINE]), name
            assert json.loads(done.out)["error"]["code"] == "run.interrupted"


IMPORTED = re.compile(r"import time:.*\| +(\S+)")
PROGRESS = re.compile(rf"(run|{'|'.join(STAGES)}): [a-z\d]")


def packages(done: Finished) -> set[str]:
    return {found[1].partition(".")[0] for found in IMPORTED.finditer(done.err)}


def timed(place: Workplace, *arguments: str) -> Finished:
    return place.run(*arguments, python=("-X", "importtime", "-m", "flows.prepare"))


def test_it_writes_nothing_and_does_without_prefect(place):
    before = place.files()
    done = timed(place, "--dataset", "imagenet", "--plan", *SMALL)
    assert done.status == 0, done.err
    assert "prefect" not in packages(done)
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
    assert "prefect" not in packages(done)
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
