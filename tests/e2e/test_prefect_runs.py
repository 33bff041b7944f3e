"""What Prefect sees of a run: names, states, one task run for each batch, nothing that grows."""

import json
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from test_copy_command import artifacts

from larder.jobs.results import RunError
from larder.pipeline.prepare import prepare
from larder.pipeline.settings import load_settings
from larder.units import format_amount
from tests.support.commands import Finished
from tests.support.prefect_server import POLL_SECONDS, PrefectServer
from tests.support.processes import wait_until
from tests.support.runs import copy_batches

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


def succeeded(done: Finished) -> dict[str, Any]:
    assert done.status == 0, done.err
    return done.document


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
    """The plan, the config and the progress of every stage are on the page of the run."""
    types = ("table", "markdown", "progress")
    prefix = f"{run['parameters']['dataset']}-"
    shown = {each["key"].removeprefix(prefix): each for each in artifacts(server, run, types)}
    assert all(each["key"].startswith(prefix) for each in shown.values())
    assert {key: each["type"] for key, each in shown.items()} == {
        "prepare": "markdown",
        "plan": "table",
        "config": "markdown",
        "card": "markdown",
        f"versions-{document['dataset']}": "table",
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
    (row,) = json.loads(shown[f"versions-{document['dataset']}"]["data"])
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


@pytest.mark.push
def test_a_run_and_the_same_again(reporting, prefect_server, named):
    name = named()
    for variable in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        reporting.environment[variable] = SECRET
    reporting.environment["AWS_ENDPOINT_URL"] = f"http://user:{SECRET}@127.0.0.1:9"  # unused
    done = reporting.run("--dataset", name, "--json", *SMALL)
    document = succeeded(done)
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
    copied = copy_batches(root, 600_000)
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

    again = succeeded(reporting.run("--dataset", name, "--json", *SMALL))
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


PROGRESS = """
import sys
from pathlib import Path
from time import sleep
from prefect import flow
from larder.progress import StageTimes
from tasks import artifacts

artifacts.PROGRESS_INTERVAL_SECONDS = 0.1

def until(shown):
    seen = lambda: (Path.cwd() / shown).exists() or sleep(0.05)
    any(seen() for _ in range(600)) or sys.exit(f"{shown} was not shown")

@flow(flow_run_name="stages that are slow")
def slow():
    times = StageTimes()
    with artifacts.stage_progress(times):
        times.start("publish")
        times.start("mirror", objects=4, bytes=4_000)
        times.advance("mirror", objects=1, bytes=1_000)
        until("first")
        times.advance("mirror", objects=2, bytes=2_000)
        until("second")
        times.finish("mirror")

slow()
"""


@pytest.mark.push
def test_progress_is_renewed_while_a_stage_runs(reporting, prefect_server):
    def progress(awaited: float) -> dict[str, Any]:
        for _ in range(600):
            runs = prefect_server.flow_runs("stages that are slow")
            shown = artifacts(prefect_server, runs[0], ["progress"]) if runs else []
            if shown and float(shown[0]["data"]) == awaited:
                break
            time.sleep(POLL_SECONDS)
        (only,) = shown
        assert float(only["data"]) == awaited
        return only

    with ThreadPoolExecutor() as pool:
        run = pool.submit(reporting.run, python=("-c", PROGRESS))
        first = progress(25.0)
        (reporting.folder / "first").touch()
        second = progress(75.0)
        (reporting.folder / "second").touch()
        assert run.result().status == 0, run.result().err
    assert first["description"].startswith("mirror: 1 of 4 objects, 1.0 kB of 4.0 kB")
    assert second["description"].startswith("mirror: 3 of 4 objects, 3.0 kB of 4.0 kB")
    last = progress(100.0)
    assert last["id"] == first["id"] == second["id"]
    assert last["description"].startswith("mirror: done, 3 of 4 objects, 3.0 kB in")


TWICE = """
import sys
from contextlib import suppress
from unittest import mock
from flows.prepare import prepare
form = json.loads(sys.argv[1])
with suppress(Exception):
    prepare(**form)
with mock.patch("flows.runs.flow_run.pool_for", side_effect=ValueError("a mistake of ours")):
    prepare(**{**form, "advanced": {}})
"""


@pytest.mark.push
def test_the_log_of_a_run_has_every_mistake_of_its_configuration(reporting, prefect_server, named):
    name = named()
    settings = ["shards.bytes=many", "on_bad_key=never", "cluster.copy.nonsense=1"]
    form = {"dataset": name, "advanced": {"settings": settings}}
    done = reporting.run(json.dumps(form), python=("-c", f"import json{TWICE}"))
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


BATCHES = """
import json, sys, threading
from contextlib import nullcontext
from unittest import mock
from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner
from larder.errors import ConfigError, Failure, FatalError, ObjectError, RetryableError, StoreError
from larder.segments import shard
from larder.jobs.results import BatchReport, Totals
from larder.progress import StageTimes
from tasks import runner, steps
from tasks.runner import Pool, task_runner

class Batch:
    def __init__(self, name):
        self.shards = [type("Shard", (), {"name": name})]

def reports_of(job, names, **options):
    with ThreadPoolTaskRunner(**options) as threads:
        pool = nullcontext(Pool(threads, 2, 2))
        with task_runner(pool, nullcontext, StageTimes()) as tasks:
            return tasks.map(shard.shard_batch, job, [Batch(name) for name in names])

def run(flow, step, *arguments, **options):
    task = steps.task_of(steps.Step(step, "shard", "shards from {batch.shards[0].name}"))
    task = task.with_options(**options)
    with mock.patch.object(shard, "shard_batch", step), mock.patch.dict(runner.TASKS, {step: task}):
        return flow(*arguments)
"""
RETRIES = """
ERRORS = {"retryable": RetryableError, "config": ConfigError, "object": ObjectError,
          "store": StoreError, "unforeseen": ValueError}

def step(job, batch, *, progress, concurrent_batches):
    kind, failures = job
    calls.append(batch.shards[0].name)
    if len(calls) <= failures:
        error = ERRORS[kind]
        raise error("failed") if kind == "unforeseen" else error("store.unavailable", "failed")
    return BatchReport()

@flow
def all_of(cases: list):
    for kind, failures in cases:
        calls.clear()
        try:
            done = reports_of((kind, failures), ["a.tar"], max_workers=2)
            result = "worked" if done == [BatchReport()] else "did not"
        except Exception as error:
            result = type(error).__name__
        answers.append([kind, failures, len(calls), result])

calls, answers = [], []
run(all_of, step, json.loads(sys.argv[1]), retry_delay_seconds=0, retry_jitter_factor=None)
print(json.dumps(answers))
"""


@pytest.mark.push
def test_tasks_are_repeated_twice_and_only_where_that_can_help(reporting):
    cases = [
        ("retryable", 2, 3, "worked"),
        ("retryable", 9, 3, "RetryableError"),
        ("unforeseen", 2, 3, "worked"),
        ("config", 9, 1, "ConfigError"),
        ("object", 9, 1, "ObjectError"),
        ("store", 9, 1, "StoreError"),
    ]
    asked = json.dumps([case[:2] for case in cases])
    done = reporting.run(asked, python=("-c", BATCHES + RETRIES))
    assert done.status == 0, done.err
    assert json.loads(done.out) == [list(case) for case in cases]


ADDRESSES = """
from contextlib import nullcontext
from unittest import mock
from prefect import flow
from prefect.context import FlowRunContext
from larder.progress import StageTimes
from tasks import runner, steps

def step(job, *, progress):
    return {"results": len(FlowRunContext.get().run_results)}

@flow
def both():
    with runner.task_runner(nullcontext(), nullcontext, StageTimes()) as tasks:
        return [tasks.run(step, n)["results"] for n in range(2)]

with mock.patch.dict(runner.TASKS, {step: steps.task_of(steps.Step(step, "plan", "step"))}):
    print(both())
"""


@pytest.mark.push
def test_no_arrow_comes_from_what_has_the_address_of_a_result(reporting):
    done = reporting.run(python=("-c", ADDRESSES))
    assert (done.status, done.out.strip()) == (0, "[0, 0]"), done.err


WINDOW = """
lock, two = threading.Lock(), threading.Barrier(2)
begun, besides, at_once, most = [], set(), 0, 0
stopped = []

def step(job, batch, *, progress, concurrent_batches):
    global at_once, most
    name = batch.shards[0].name
    with lock:
        begun.append(name)
        besides.add(concurrent_batches)
        at_once += 1
        most = max(most, at_once)
    try:
        return act(name, progress)
    finally:
        with lock:
            at_once -= 1

def act(name, progress):
    if job == "all":  # two at once, each time
        two.wait(60)
        failed = (Failure(name, "sample.empty", "empty"),) if name in "bd" else ()
        return BatchReport(Totals(1, 2), failed, len(failed))
    two.wait(60) if name in "ab" else None
    if name == "b":
        raise StoreError("store.denied", "no")
    try:
        while True:
            progress.advance("shard", objects=1)
    except FatalError as error:
        stopped.append(error.code)
        raise

@flow(flow_run_name=sys.argv[2])
def batches():
    return reports_of(None, "abcdef")  # as wide as Prefect makes it

job, error, reports = sys.argv[1], "", []
try:
    reports = run(batches, step)
except StoreError as raised:
    error = raised.code
failed = [failure.key for report in reports for failure in report.failures]
print(json.dumps({"begun": sorted(begun), "beside": sorted(besides), "most": most, "error": error,
                  "stopped": stopped, "failed": failed,
                  "done": sum(report.done.count for report in reports)}))
"""


def states(server: PrefectServer, name: str, count: int) -> dict[str, str]:
    """The state of each task run of a flow run, by the name of its first shard."""
    (run,) = server.flow_runs(name)
    found = {}
    for task in server.task_runs(run, count):
        found[task["name"].removeprefix("shards from ")] = task["state_type"]
    return found


@pytest.mark.push
def test_batches_are_submitted_in_a_window_and_failed_ones_are_failed_task_runs(
    reporting, prefect_server
):
    done = reporting.run("all", "window of all", python=("-c", BATCHES + WINDOW))
    assert succeeded(done) == {
        "begun": list("abcdef"),
        "beside": [2],
        "most": 2,
        "error": "",
        "stopped": [],
        "failed": ["b", "d"],
        "done": 6,
    }
    expected = dict.fromkeys("acef", "COMPLETED") | dict.fromkeys("bd", "FAILED")
    assert states(prefect_server, "window of all", 6) == expected


@pytest.mark.push
def test_an_error_of_one_batch_stops_the_others_and_no_more_are_submitted(
    reporting, prefect_server
):
    document = succeeded(
        reporting.run("stop", "window that stops", python=("-c", BATCHES + WINDOW))
    )
    assert (document["begun"], document["error"]) == (["a", "b"], "store.denied")
    assert document["stopped"] == ["run.interrupted"]
    assert states(prefect_server, "window that stops", 2) == {"a": "CANCELLED", "b": "FAILED"}
    (run,) = prefect_server.flow_runs("window that stops")
    every = {"flow_runs": {"id": {"any_": [run["id"]]}}}
    assert len(prefect_server.post("/task_runs/filter", every)) == 2


def untimed(line: str) -> str:
    """A stage's line without its seconds: terminal and log each take the time on their own."""
    return re.sub(r" in [\d.]+ s$", "", line)


@pytest.mark.push
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


@pytest.mark.push
def test_batches_whose_objects_failed_are_failed_and_reported_as_without_prefect(
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

    settings = load_settings(
        name,
        config_dir=reporting.folder / "configs",
        settings=(*SMALL[1::2], f"cluster.storage.url={reporting.folder}/inline"),
        environ=reporting.environment,
    )
    with pytest.raises(RunError) as inline:
        prepare(settings)
    report = inline.value.report
    assert [asdict(failure) for failure in report.failures] == document["failures"]
    assert (report.failed, inline.value.message) == (2, document["error"]["message"])

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
