"""A command that another run supersedes starts again, in the same process and the same flow run."""

import pytest

from larder.store import open_store
from larder.versions.tags import read_tag
from tests.support.checker import check_all

pytestmark = pytest.mark.push

SCRIPT = """
import shutil, sys
from pathlib import Path

from flows.runs.flow_command import flow_command
from larder.pipeline.preparing import prepare
from larder.pipeline.settings import load_settings
from tests.support.stores import Meanwhile, MeanwhileStore
from tests.support.runs import between

name, source = "imagenet", Path(sys.argv[1])
sys.argv[1:] = ["--dataset", name, "--json"]
made = 0

def grow():
    global made
    made += 1
    image = min(source.glob("train/*/*.JPEG"))
    shutil.copy(image, image.with_name(f"zz{made:02}.JPEG"))

def other_run():
    grow()
    settings = load_settings(name, config_dir=Path("configs"))
    with between():
        assert prepare(settings)["status"] == "built"
    grow()

meanwhile = Meanwhile()
meanwhile.before("head", "tags/latest.json", other_run, times=2)
with between(lambda store: MeanwhileStore(store, meanwhile)):
    status = flow_command("prepare")
assert not meanwhile.waiting
sys.exit(status)
"""
AGAIN = "another run has moved the tag since this one listed the source"


def test_one_flow_run_starts_again_and_ends_as_completed(reporting, own_source, prefect_server):
    earlier = {run["id"] for run in prefect_server.flow_runs("prepare imagenet for local")}
    source = own_source(reporting)
    done = reporting.run(str(source), python=("-c", SCRIPT))
    assert done.status == 0, done.err
    restarts = [line for line in done.err.splitlines() if line.startswith(AGAIN)]
    assert [line[-len("(1 of 3)") :] for line in restarts] == ["(1 of 3)", "(2 of 3)"]
    root = open_store(str(reporting.storage / "larder/imagenet"))
    tag = read_tag(root, "latest")
    assert tag is not None
    assert done.document["version"] == tag.version
    samples = check_all(root)[tag.version].samples
    assert sum(map(len, samples.values())) == len([*source.rglob("*.JPEG")])

    runs = prefect_server.flow_runs("prepare imagenet for local")
    (run,) = [run for run in runs if run["id"] not in earlier]
    assert run["state_type"] == "COMPLETED"
    tasks = prefect_server.task_runs(run, 20)
    assert {task["state_name"] for task in tasks} == {"Superseded", "Completed"}
    superseded = [task["name"] for task in tasks if task["state_name"] == "Superseded"]
    assert all(name.startswith("publish") for name in superseded)
    prefect_server.logs(run, AGAIN)
