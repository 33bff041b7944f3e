"""What Prefect sees of a run: names, states, one task run for each batch, nothing that grows."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from test_copy_command import artifacts

from larder.units import format_amount
from tests.support.commands import Workplace
from tests.support.prefect_server import PROMPT, PrefectServer
from tests.support.processes import wait_until
from tests.support.runs import copy_batches

pytestmark = pytest.mark.push

SMALL = ("--set", "shards.bytes=600 kB", "--set", "cluster.runner.batch_bytes=600 kB")
SMALL += ("--set", "mirror=true")
SECRET = "anotherverysecretvalue987654321"
NAMES = {
    "inventory": r"inventory of NAME",
    "plan": r"plan NAME",
    "copy": r"copy objects? [\d,]+( to [\d,]+)?",
    "record": r"record of the copy",
    "shard": r"shards from NAME-(train|validation)-\d{6}\.tar",
    "index": r"index of the shards",
    "cache": r"cache of (train|validation)",
    "publish": r"publish version [0-9a-f]{32}",
    "record run": r"record of version [0-9a-f]{32}",
    "emit": r"config for local",
    "card": r"data card of [0-9a-f]{32}",
}


def check_graph(tasks: list[dict[str, Any]]) -> None:
    """Tasks follow from those of the previous step only, and a batch from one."""
    names = {task["id"]: task["name"] for task in tasks}
    for task in tasks:
        inputs = task["task_inputs"]
        arrows = [names[source["id"]] for sources in inputs.values() for source in sources]
        assert arrows or task["name"].startswith("inventory"), task["name"]
        kinds = {name.split(" ")[0] for name in arrows}
        assert len(kinds) <= 1, (task["name"], arrows)
        assert "batch" not in inputs or len(arrows) == 1, (task["name"], arrows)


def check_artifacts(server: PrefectServer, run: dict[str, Any], document: dict[str, Any]) -> None:
    types = ("table", "markdown", "progress")
    prefix = f"{run['parameters']['dataset']}-"
    shown = {each["key"].removeprefix(prefix): each for each in artifacts(server, run, types)}
    assert all(each["key"].startswith(prefix) for each in shown.values())
    assert {key: each["type"] for key, each in shown.items()} == {
        "prepare": "markdown",
        "plan": "table",
        "config": "markdown",
        "card": "markdown",
        "versions": "table",
        **{
            f"progress-{stage}": "progress"
            for stage, facts in document["stages"].items()
            if facts["objects"]
        },
    }
    plan = json.loads(shown["plan"]["data"])
    assert {row["item"] for row in plan} >= {"source", "classes", "shards", "cache", "cost"}
    assert plan[0]["item"] == "delivery"
    assert {"item": "source", "plan": format_amount(document["objects"])} in plan
    (config,) = document["configs"]
    assert Path(config).read_text() in shown["config"]["data"]
    assert document["card"] in shown["card"]["data"]
    (row,) = json.loads(shown["versions"]["data"])
    assert (row["version"], row["tags"]) == (document["version"][:8], "latest")
    assert row["by"] == f"{run['name']} {run['id']}"
    mirror = shown["progress-mirror"]
    assert float(mirror["data"]) == 100
    assert f"done, {format_amount(document['copied'])} in" in mirror["description"]


def published_event(server: PrefectServer, dataset: str) -> dict[str, Any]:
    """The only event of a dataset, once it is there."""
    resource = {"id": [f"larder.dataset.{dataset}"]}
    seen: list[dict[str, Any]] = []

    def emitted() -> bool:
        question = {"filter": {"resource": resource}}
        seen[:] = server.post("/events/filter", question)["events"]
        return bool(seen)

    wait_until(emitted)
    (event,) = seen
    assert event["event"] == "larder.version.published"
    return event


def test_a_run_and_the_same_again(reporting, prefect_server, named):
    name = named()
    for variable in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        reporting.environment[variable] = SECRET
    reporting.environment["AWS_ENDPOINT_URL"] = f"http://user:{SECRET}@127.0.0.1:9"  # unused
    done = reporting.run("--dataset", name, "--json", *SMALL)
    assert done.status == 0, done.err
    document = done.document
    assert document["status"] == "built"
    assert SECRET not in done.out + done.err
    for path in reporting.folder.rglob("*"):
        assert not path.is_file() or SECRET.encode() not in path.read_bytes(), path

    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed")
    assert run["parameters"] == {
        "dataset": name,
        "cluster": "local",
        "plan": False,
        "advanced": {"settings": [SMALL[1], SMALL[3], SMALL[5]], "config_dir": "configs"},
    }
    root = reporting.storage / "larder" / name
    copied = copy_batches(root, batch_bytes=600_000)
    sharded = len(list(root.glob("segments/*/work/shards/*/*.parquet")))
    assert 3 < copied < 12
    assert 3 < sharded < 12
    expected = {"copy": copied, "shard": sharded, "cache": 2}
    tasks = prefect_server.task_runs(run, sum(expected.values()) + 8)
    names = [task["name"] for task in tasks]
    for task, pattern in NAMES.items():
        matching = [each for each in names if re.fullmatch(pattern.replace("NAME", name), each)]
        assert len(matching) == expected.get(task, 1), (task, names)
    assert len(tasks) == sum(expected.values()) + 8
    check_graph(tasks)
    check_artifacts(prefect_server, run, document)
    assert set(run["tags"]) == {"built", document["version"]}

    event = published_event(prefect_server, name)
    assert event["resource"]["larder.version"] == document["version"]
    assert event["payload"]["growth_percent"] == 0
    assert f"prefect.flow-run.{run['id']}" in {
        each["prefect.resource.id"] for each in event["related"]
    }

    again = reporting.run("--dataset", name, "--json", *SMALL).document
    assert (again["status"], again["digest"]) == ("reused", document["digest"])
    _, second = prefect_server.flow_runs(f"prepare {name} for local")
    assert second["state_type"] == "COMPLETED"
    assert set(second["tags"]) == {"reused", document["version"]}
    names = sorted(task["name"] for task in prefect_server.task_runs(second, 2))
    assert names == ["config for local", f"inventory of {name}"]

    # Neither credentials nor anything that grows with the dataset: no object's key is there.
    for path in prefect_server.home.glob("prefect.db*"):
        data = path.read_bytes()
        assert SECRET.encode() not in data
        assert b"ILSVRC2012_val_" not in data


TWICE = """
import json, sys
from contextlib import suppress
from unittest import mock
from flows.prepare import prepare
form = json.loads(sys.argv[1])
with suppress(Exception):
    prepare(form["dataset"], advanced=form["advanced"])
with mock.patch("flows.runs.flow_run.executor_for", side_effect=ValueError("a mistake of ours")):
    prepare(**{**form, "advanced": {}})
"""


def test_the_log_of_a_run_has_every_mistake_of_its_configuration(reporting, prefect_server, named):
    name = named()
    settings = ["shards.bytes=many", "on_bad_key=never", "cluster.copy.nonsense=1"]
    form = {"dataset": name, "advanced": {"settings": settings}}
    done = reporting.run(json.dumps(form), python=("-c", TWICE))
    assert done.status == 1
    run, unexpected = prefect_server.flow_runs(f"prepare {name} for local")
    assert (run["state_type"], run["tags"]) == ("FAILED", ["failed"])
    logged = prefect_server.logs(run, "error[")
    mistakes = [line for line in logged if line.startswith("error[config.")]
    assert len(mistakes) == len(settings)
    for setting in settings:
        assert [line for line in mistakes if setting.partition("=")[0] in line], mistakes
    assert logged[-1] == mistakes[-1] == run["state"]["message"]
    assert "Traceback" not in "".join(logged)

    logged = prefect_server.logs(unexpected, "error[")
    assert logged[-1] == unexpected["state"]["message"]
    assert logged[-1].startswith("error[run.internal]: unexpected ValueError: a mistake of ours")
    assert "Traceback" in logged[-2]


@pytest.fixture(scope="module")
def tried(
    prefect_server: PrefectServer, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    place = Workplace(tmp_path_factory.mktemp("tried"), PREFECT_API_URL=prefect_server.url)
    place.environment |= PROMPT
    done = place.run(python=("-m", "tests.e2e.tasks_of_a_run"))
    assert done.status == 0, done.err
    return done.document


def states(server: PrefectServer, name: str, count: int) -> dict[str, str]:
    (run,) = server.flow_runs(name)
    tasks = server.task_runs(run, count)
    assert len(tasks) == count
    return {task["name"].removeprefix("batch "): task["state_type"] for task in tasks}


def test_tasks_are_repeated_twice_and_only_where_that_can_help(tried):
    assert tried["retryable, twice"] == tried["unforeseen, twice"] == [3, True]
    assert tried["retryable"] == [3, False]
    assert tried["object"] == tried["store"] == [1, False]


def test_batches_are_submitted_in_a_window_and_failed_ones_are_failed_task_runs(
    tried, prefect_server
):
    done = {"begun": list("abcdef"), "most": 2, "error": "", "stopped": [], "done": 6}
    assert tried["all"] == {**done, "failed": ["b", "d"]}
    expected = dict.fromkeys("acef", "COMPLETED") | dict.fromkeys("bd", "FAILED")
    assert states(prefect_server, "window of all", 6) == expected


def test_no_arrow_comes_from_what_has_the_address_of_a_result(tried):
    assert tried["kept"] == [0, 0]


def test_an_error_of_one_batch_stops_the_others_and_no_more_are_submitted(tried, prefect_server):
    begun = {
        "begun": ["a", "b"],
        "most": 2,
        "error": "store.denied",
        "stopped": ["run.interrupted"],
    }
    assert tried["stop"] == {**begun, "done": 0, "failed": []}
    assert states(prefect_server, "window that stops", 2) == {"a": "CANCELLED", "b": "FAILED"}


def test_progress_is_renewed_while_a_stage_runs(tried):
    identities, texts = zip(*tried["progress"], strict=True)
    assert len(set(identities)) == 1
    assert texts[0].startswith("mirror: 1 of 4 objects, 1.0 kB of 4.0 kB")
    assert texts[1].startswith("mirror: 3 of 4 objects, 3.0 kB of 4.0 kB")
    assert texts[2].startswith("mirror: done, 3 of 4 objects, 3.0 kB in")


def untimed(line: str) -> str:
    """A stage's line without its seconds: terminal and log each take the time on their own."""
    return re.sub(r" in [\d.]+ s$", "", line)


def test_the_log_of_a_run_has_its_stages_and_the_terminal_has_them_once(
    reporting, prefect_server, named, own_source
):
    name = named()
    bad = min(own_source(reporting).glob("train/*/*.JPEG"))
    bad.write_bytes(b"no image")
    done = reporting.run("--dataset", name, "--set", "on_bad_sample=skip", *SMALL[4:])
    assert done.status == 0, done.err
    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    shown = done.err.splitlines()
    address = f"http://127.0.0.1:{prefect_server.port}/runs/flow-run/{run['id']}"
    assert shown.count(f"run: {address}") == 1
    stages = [line for line in shown if not line.startswith(("prefect: ", "run: "))]
    assert len([line for line in stages if line.startswith("mirror: started")]) == 1

    logged = prefect_server.logs(run, "Finished in state")
    stages = [untimed(line) for line in stages]
    assert [line for line in map(untimed, logged) if line in stages] == stages
    (summary, *_) = done.out.splitlines()
    begun = summary.rpartition(" in ")[0]
    assert [line for line in logged if line.startswith(begun)]
    assert [line for line in logged if line.startswith("  config ")] == [
        f"  config   {reporting.folder}/out/local/{name}/experiment.yaml"
    ]

    (table,) = [each for each in artifacts(prefect_server, run) if each["key"] == f"{name}-skipped"]
    assert table["description"] == "1 that were skipped"
    (row,) = json.loads(table["data"])
    assert (row["code"], bad.name in row["key"]) == ("sample.undecodable", True)
    assert [line for line in logged if row["key"] in line and row["message"] in line]
    assert "1 skipped, as the dataset file says" in logged
    assert [line for line in logged if line.startswith("warning[few_shards]: ")]


def test_batches_whose_objects_failed_are_failed_and_reported(
    reporting, prefect_server, named, own_source
):
    name = named()
    images = sorted(own_source(reporting).glob("train/*/*.JPEG"))
    for bad in (images[0], images[-1]):
        bad.write_bytes(b"no image")
    done = reporting.run("--dataset", name, "--json", *SMALL)
    assert done.status == 1
    document = done.document
    assert list(document) == ["error", "failed", "failures"]
    assert (document["error"]["code"], document["failed"]) == ("run.failed", 2)
    assert {failure["code"] for failure in document["failures"]} == {"sample.undecodable"}
    told = [line.partition(":")[0] for line in done.err.splitlines() if "[" in line]
    assert told == ["failed[sample.undecodable]"] * 2 + ["error[run.failed]"]
    assert not list(reporting.storage.glob(f"larder/{name}/versions/*/version.json"))

    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert run["state_type"] == "FAILED"
    assert "\n" not in run["state"]["message"]
    assert "cannot be decoded" in run["state"]["message"]
    logged = prefect_server.logs(run, "error[run.failed]: ")
    assert logged[-1] == done.err.splitlines()[-1] == run["state"]["message"]
    for failure in document["failures"]:
        assert [line for line in logged if failure["key"] in line and line.startswith("failed[")]
    failed = prefect_server.task_runs(run, 2, ["FAILED"])
    assert [task["name"][:11] for task in failed] == ["shards from"] * 2
    assert {task["run_count"] for task in failed} == {1}
    others = prefect_server.task_runs(run, 4, ["COMPLETED", "CRASHED", "CANCELLED"])
    assert {task["state_type"] for task in others} == {"COMPLETED"}
    assert any(task["name"].startswith("shards from") for task in others)
