"""``python -m flows.prepare`` as a user runs it: what it prints, what it leaves, how it ends."""

import re
import shutil
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from larder.cli.display import STAGES
from tests.support.commands import Finished, Workplace

IMPORTED = re.compile(r"import time:.*\| +(\S+)")
SMALL = ("--set", "shards.bytes=400 kB", "--set", "cluster.runner.batch_bytes=800 kB")
SMALL += ("--set", "mirror=true")
PROGRESS = re.compile(rf"(run|{'|'.join(STAGES)}): [a-z\d]")
SECRET = "verysecretvalue0123456789"


def imported(done: Finished) -> set[str]:
    """The packages that a command run with ``-X importtime`` imported."""
    return {found[1].partition(".")[0] for found in IMPORTED.finditer(done.err)}


def timed(place: Workplace, *arguments: str) -> Finished:
    return place.run(*arguments, python=("-X", "importtime", "-m", "flows.prepare"))


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, source: Path, prefect_server: object
) -> tuple[Workplace, Finished]:
    """A workplace where the command has been run once, and what it printed."""
    place = Workplace(
        tmp_path_factory.mktemp("built"),
        IMAGENET_SOURCE=str(source),
        PREFECT_API_URL=prefect_server.url,  # type: ignore[attr-defined]
        AWS_SECRET_ACCESS_KEY=SECRET,
        AWS_SESSION_TOKEN=SECRET,
        AWS_ENDPOINT_URL=f"http://user:{SECRET}@127.0.0.1:9",  # unused: there is no bucket
    )
    done = place.run("--dataset", "imagenet", "--json", *SMALL)
    del place.environment["PREFECT_API_URL"]
    return place, done


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


def test_one_document_on_stdout_and_progress_on_stderr(built, source):
    place, done = built
    assert done.status == 0, done.err
    document = done.document
    sizes = [path.stat().st_size for path in source.rglob("*.JPEG")]
    assert document["objects"] == {"count": 60, "bytes": sum(sizes)}
    assert document["copied"] == document["objects"]
    assert document["segments"] == {"total": 1, "new": 1, "omitted": 0}
    assert document["shards"]["samples"] == document["cache"]["records"] == 60
    assert document["shards"]["patterns"].keys() == {"train", "validation"}
    assert (document["failures"], document["skipped"]) == ([], 0)
    for config in document["configs"]:
        assert Path(config).is_relative_to(place.folder / "out/local/imagenet")
        assert YAML(typ="safe").load(Path(config).read_text())["data"]["version"]
    told = [f"warning[{each['code']}]: {each['message']}" for each in document["warnings"]]
    assert [line for line in done.err.splitlines() if not PROGRESS.match(line)] == told
    assert {each["code"] for each in document["warnings"]} == {"few_shards"}
    assert list(place.temporary.iterdir()) == []


def test_no_secret_is_written_anywhere(built):
    place, done = built
    assert SECRET not in done.out + done.err
    for path in place.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path


def test_again_nothing_is_written_and_prefect_not_imported(built):
    place, first = built
    before = place.files()
    done = timed(place, "--dataset", "imagenet", "--json", *SMALL)
    assert done.status == 0, done.err
    assert "prefect" not in imported(done)
    document = done.document
    assert document["status"] == "reused"
    assert document["copied"] == {"count": 0, "bytes": 0}
    assert document["segments"] == {"total": 1, "new": 0, "omitted": 0}
    for field in ("version", "digest", "inputs", "location", "objects", "configs"):
        assert document[field] == first.document[field]
    after = place.files()
    assert {name for name in after if after[name] != before.get(name)} <= {"tmp"}


def test_for_people_it_ends_with_a_summary(built):
    place, first = built
    done = place.run("--dataset", "imagenet", "--output", "elsewhere", *SMALL)
    lines = done.out.splitlines()
    assert lines[0].startswith(f"imagenet reused: version {first.document['version']} in ")
    assert lines[1].startswith("  source   60 objects, ")
    config = f"{place.folder}/elsewhere/experiment.yaml"
    assert lines[-2:] == [
        f"  config   {config}",
        f"  submit   det experiment create {config} MODEL_DIR",
    ]
    shutil.rmtree(place.folder / "elsewhere")


def test_a_missing_prefect_server(place):
    done = place.run("--dataset", "imagenet", PREFECT_API_URL="http://127.0.0.1:9/api")
    assert (done.status, done.out) == (1, "")
    (line,) = [line for line in done.err.splitlines() if not PROGRESS.match(line)]
    assert line.startswith("error[run.server]: ")
    assert "127.0.0.1:9" in line


@pytest.mark.exhaustive
def test_a_server_that_cannot_start_says_why(place):
    home = place.folder / "home/.prefect"
    home.write_text("in the way")
    done = place.run("--dataset", "imagenet", "--json", *SMALL)
    assert done.status == 1
    assert done.document["error"]["code"] == "run.server"
    assert "File exists" in done.document["error"]["message"]
    assert "Traceback" not in done.err
