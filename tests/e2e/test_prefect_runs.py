"""What Prefect sees of a run: names, states, one task run for each batch, nothing that grows."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import PrefectServer

from larder.testing.commands import Finished, Workplace

SMALL = ("--set", "shards.bytes=200 kB", "--set", "cluster.runner.batch_bytes=600 kB")
SECRET = "anotherverysecretvalue987654321"
NAMES = {
    "inventory": r"inventory of NAME",
    "plan": r"plan NAME",
    "mirror": r"mirror \d+ objects from \d+",
    "seal mirror": r"manifests of the mirror",
    "shard": r"shards from NAME-(train|validation)-\d{6}\.tar",
    "index": r"index of the shards",
    "cache": r"cache of (train|validation)",
    "publish": r"publish version [0-9a-f]{32}",
    "emit": r"config for local",
}


@pytest.fixture
def named(reporting: Workplace, request: pytest.FixtureRequest) -> Callable[[], str]:
    """Makes the dataset imagenet under a name that no other test's flow runs have."""

    def make() -> str:
        name = re.sub(r"[^a-z]+", "-", request.node.name.lower())[-40:].strip("-")
        datasets = reporting.folder / "configs/datasets"
        text = (datasets / "imagenet.yaml").read_text()
        (datasets / f"{name}.yaml").write_text(text.replace("name: imagenet", f"name: {name}"))
        return name

    return make


def succeeded(done: Finished) -> dict[str, Any]:
    assert done.status == 0, done.err
    return done.document


def test_a_run_and_the_same_again(
    reporting: Workplace, prefect_server: PrefectServer, named: Callable[[], str]
) -> None:
    name = named()
    for variable in ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        reporting.environment[variable] = SECRET
    reporting.environment["AWS_ENDPOINT_URL"] = f"http://user:{SECRET}@127.0.0.1:9"  # unused
    done = reporting.run("--dataset", name, "--json", *SMALL)
    document = succeeded(done)
    assert document["status"] == "built"

    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert (run["state_type"], run["state_name"]) == ("COMPLETED", "Completed")
    assert run["parameters"] == {
        "dataset": name,
        "cluster": "local",
        "settings": [SMALL[1], SMALL[3]],
        "config_dir": "configs",
        "output": str(reporting.folder / "out/local" / name),
    }
    work = next(reporting.local.glob(f"larder/{name}/segments/*/work"))
    copied = len(list(work.glob("mirror/*.parquet")))
    sharded = len(list(work.glob("shards/*.json")))
    assert 3 < copied < 12
    assert 3 < sharded < 12
    expected = {"mirror": copied, "shard": sharded, "cache": 2}
    tasks = prefect_server.task_runs(run, sum(expected.values()) + 6)
    names = [task["name"] for task in tasks]
    for task, pattern in NAMES.items():
        matching = [each for each in names if re.fullmatch(pattern.replace("NAME", name), each)]
        assert len(matching) == expected.get(task, 1), (task, names)
    assert len(tasks) == sum(expected.values()) + 6

    again = succeeded(reporting.run("--dataset", name, "--json", *SMALL))
    assert (again["status"], again["digest"]) == ("reused", document["digest"])
    _, second = prefect_server.flow_runs(f"prepare {name} for local")
    assert second["state_type"] == "COMPLETED"
    names = sorted(task["name"] for task in prefect_server.task_runs(second, 3))
    version = document["version"]
    assert names == ["config for local", f"inventory of {name}", f"reuse version {version}"]

    # Neither credentials nor anything that grows with the dataset: no object's key is there.
    for path in prefect_server.home.glob("prefect.db*"):
        data = path.read_bytes()
        assert SECRET.encode() not in data
        assert b"ILSVRC2012_val_" not in data


def test_a_run_that_fails_says_why_in_one_line(
    reporting: Workplace,
    prefect_server: PrefectServer,
    named: Callable[[], str],
    own_source: Callable[[Workplace], Path],
) -> None:
    name = named()
    bad = min(own_source(reporting).glob("train/*/*.JPEG"))
    bad.write_bytes(b"no image")
    assert reporting.run("--dataset", name, "--json", *SMALL).status == 1
    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert run["state_type"] == "FAILED"
    message = run["state"]["message"]
    assert "\n" not in message
    assert bad.name in message
    assert "cannot be decoded" in message


def test_a_store_that_refuses_is_tried_once(
    reporting: Workplace, prefect_server: PrefectServer, named: Callable[[], str]
) -> None:
    name = named()
    done = reporting.run("--dataset", name, "--json", "--set", "source.url=./nowhere")
    assert (done.status, done.document["error"]["code"]) == (3, "store.missing")
    assert len([line for line in done.err.splitlines() if "error" in line]) == 1
    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert run["state_type"] == "FAILED"
    (task,) = prefect_server.task_runs(run, 1)
    assert (task["name"], task["run_count"]) == (f"inventory of {name}", 1)


def test_the_flow_as_a_deployment_calls_it(
    reporting: Workplace, prefect_server: PrefectServer, named: Callable[[], str]
) -> None:
    name = named()
    script = (
        "import json\n"
        "from flows.prepare_flow import prepare\n"
        f"print(json.dumps(prepare(dataset={name!r})))"
    )
    done = reporting.run(python=("-c", script))
    document = succeeded(done)
    assert document["status"] == "built"
    assert (reporting.folder / f"out/local/{name}/experiment.yaml").is_file()
    (run,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert run["parameters"]["settings"] is None


RETRIES = """
import json, sys
from unittest import mock
from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner
from larder.errors import ConfigError, ObjectError, RetryableError, StoreError
from larder.pipeline import shard
from tasks import runner
from tasks import shard as shard_tasks
from tasks.runner import TaskRunner

ERRORS = {"retryable": RetryableError, "config": ConfigError, "object": ObjectError,
          "store": StoreError, "unforeseen": ValueError}

class Batch:
    def __init__(self, name):
        self.shards = [type("Shard", (), {"name": name})]

def step(job, batch, *, progress, beside):
    kind, failures = job
    calls.append(batch.shards[0].name)
    if len(calls) <= failures:
        error = ERRORS[kind]
        raise error("failed") if kind == "unforeseen" else error("store.unavailable", "failed")
    return "worked"

@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def all_of(cases: list):
    for kind, failures in cases:
        calls.clear()
        try:
            result = TaskRunner(2).map(shard.shard_batch, (kind, failures), [Batch("a.tar")])
        except Exception as error:
            result = type(error).__name__
        answers.append([kind, failures, len(calls), result])

soon = shard_tasks.shard_batch.with_options(retry_delay_seconds=0, retry_jitter_factor=None)
calls, answers = [], []
with mock.patch.object(shard, "shard_batch", step), \\
        mock.patch.dict(runner._TASKS, {step: soon}):
    all_of(json.loads(sys.argv[1]))
print(json.dumps(answers))
"""


def test_tasks_are_repeated_twice_and_only_where_that_can_help(reporting: Workplace) -> None:
    cases = [
        ("retryable", 2, 3, ["worked"]),
        ("retryable", 9, 3, "RetryableError"),
        ("unforeseen", 2, 3, ["worked"]),
        ("config", 9, 1, "ConfigError"),
        ("object", 9, 1, "ObjectError"),
        ("store", 9, 1, "StoreError"),
    ]
    asked = json.dumps([case[:2] for case in cases])
    done = reporting.run(asked, python=("-c", RETRIES))
    assert done.status == 0, done.err
    assert json.loads(done.out) == [list(case) for case in cases]


STOPS = """
import threading
from prefect import flow
from prefect.task_runners import ThreadPoolTaskRunner
from larder.errors import FatalError, StoreError
from unittest import mock
from larder.pipeline import shard
from tasks import runner
from tasks import shard as shard_tasks
from tasks.runner import TaskRunner

class Batch:
    def __init__(self, name):
        self.shards = [type("Shard", (), {"name": name})]

begun, stopped = threading.Event(), []

def step(job, batch, *, progress, beside):
    if batch.shards[0].name == "bad":
        begun.wait()
        raise StoreError("store.denied", "no")
    begun.set()
    try:
        while True:
            progress.advance("shard", objects=1)
    except FatalError as error:
        stopped.append(error.code)
        raise

@flow(task_runner=ThreadPoolTaskRunner(max_workers=2))
def both():
    return TaskRunner(2).map(shard.shard_batch, None, [Batch("endless"), Batch("bad")])

with mock.patch.object(shard, "shard_batch", step), \\
        mock.patch.dict(runner._TASKS, {step: shard_tasks.shard_batch}):
    try:
        both()
    except StoreError as error:
        print(error.code, *stopped)
"""


def test_an_error_of_one_batch_stops_the_others(reporting: Workplace) -> None:
    done = reporting.run(python=("-c", STOPS))
    assert done.status == 0, done.err
    assert done.out.split() == ["store.denied", "run.interrupted"]
