"""What people do in Prefect's UI: start the flow by a deployment, read its log, cancel it."""

import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any

import pytest

from larder.store import open_store
from tests.support.checker import check_all
from tests.support.commands import Workplace
from tests.support.prefect_server import PrefectServer
from tests.support.runs import copy_batches

pytestmark = pytest.mark.push

ENDLESS = """
import threading
from larder.copy import copy_job

def endless(job, batch, *, progress, concurrent_batches):
    while True:
        progress.advance("mirror", objects=1)
        threading.Event().wait(0.01)

copy_job.copy_objects = endless
"""
DEPLOYED = f"{ENDLESS}\nfrom flows.prepare import prepare\n"
COMMAND = f"{ENDLESS}\nimport sys\nfrom flows.runs.flow_command import flow_command\n"
COMMAND += 'sys.exit(flow_command("prepare"))\n'
EXECUTE = ("-m", "prefect", "flow-run", "execute")
WORKERS = 2


@pytest.fixture
def deployed(
    reporting: Workplace, prefect_server: PrefectServer, named: Callable[[], str]
) -> Callable[..., str]:
    """Makes a deployment of a dataset of its own; gives the ID of a run of it."""

    def make(entrypoint: str = "flows.prepare.prepare") -> str:
        name = named()
        cluster = reporting.folder / "configs/clusters/local.yaml"
        limits = f"runner: {{workers: {WORKERS}, batch_bytes: 200 kB}}"
        cluster.write_text(f"{cluster.read_text()}\n{limits}\n")
        flow = prefect_server.post("/flows/", {"name": "prepare"})
        where = {"directory": str(reporting.folder)}
        settings = ["mirror=true", "shards.bytes=200 kB"]
        deployment = {
            "name": name,
            "flow_id": flow["id"],
            "entrypoint": entrypoint,
            "pull_steps": [{"prefect.deployments.steps.set_working_directory": where}],
            "parameters": {"dataset": name, "advanced": {"settings": settings}},
        }
        made = prefect_server.post("/deployments/", deployment)
        run = prefect_server.post(f"/deployments/{made['id']}/create_flow_run", {})
        identity: str = run["id"]
        return identity

    return make


def most_at_once(tasks: list[dict[str, Any]]) -> int:
    """How many of the task runs overlapped, at most."""
    moments = [(task["start_time"], 1) for task in tasks]
    moments += [(task["end_time"], -1) for task in tasks]
    return max(accumulate(step for _, step in sorted(moments)))  # at the same moment, ends first


def test_a_deployment_keeps_the_limits_of_the_cluster_file(reporting, prefect_server, deployed):
    identity = deployed()
    done = reporting.run(identity, python=EXECUTE)
    assert done.status == 0, done.err
    run = prefect_server.get(f"/flow_runs/{identity}")
    assert run["state_type"] == "COMPLETED", (run["state"]["message"], done.err)
    dataset = run["parameters"]["dataset"]
    root = reporting.storage / "larder" / dataset
    (version,) = check_all(open_store(str(root)))
    prefect_server.logs(run, f"{dataset} built: version {version}")

    batches = {
        "copy": copy_batches(root, workers=WORKERS, batch_bytes=200_000),
        "shards": len(list(root.glob("segments/*/work/shards/*/*.parquet"))),
    }
    tasks = prefect_server.task_runs(run, sum(batches.values()) + 8)
    for kind, count in batches.items():
        of_kind = [task for task in tasks if re.match(rf"{kind} (objects?|from) ", task["name"])]
        assert len(of_kind) == count > 2 * WORKERS
        assert most_at_once(of_kind) <= WORKERS


def cancel(server: PrefectServer, run: str) -> None:
    server.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})


def test_a_deployed_run_is_cancelled_between_two_objects(reporting, prefect_server, deployed):
    (reporting.folder / "endless.py").write_text(DEPLOYED)
    identity = deployed("endless.py:prepare")
    running = reporting.start(identity, python=EXECUTE)
    prefect_server.logs({"id": identity}, "mirror: started")
    cancel(prefect_server, identity)
    running.wait()
    run = prefect_server.get(f"/flow_runs/{identity}")
    assert run["state_type"] == "CANCELLED", run["state"]
    tasks = prefect_server.task_runs(run, 4)
    assert [task["state_type"] for task in tasks if task["name"].startswith("copy")] == [
        "CANCELLED"
    ] * WORKERS


def test_a_command_whose_run_is_cancelled_stops_between_two_objects(reporting, prefect_server):
    limits = ("--set", "cluster.runner.workers=2", "--set", "cluster.runner.batch_bytes=600 kB")
    limits += ("--set", "mirror=true")
    running = reporting.start("--dataset", "imagenet", "--json", *limits, python=("-c", COMMAND))
    address = running.read_until("run: ")
    running.read_until("mirror: started")
    identity = address.rpartition("/")[2]
    assert address == f"run: http://127.0.0.1:{prefect_server.port}/runs/flow-run/{identity}"
    cancel(prefect_server, identity)
    running.read_until("warning: cancelled in Prefect: stopping after the objects in progress")
    done = running.wait()
    assert (done.status, done.document["error"]["code"]) == (130, "run.interrupted"), done.err
    run = prefect_server.get(f"/flow_runs/{identity}")
    assert run["state_type"] == "CANCELLED", run["state"]
    tasks = prefect_server.task_runs(run, 4)
    assert sorted(task["state_type"] for task in tasks) == ["CANCELLED"] * 2 + ["COMPLETED"] * 2
    assert not list(reporting.storage.glob("larder/imagenet/versions/*/version.json"))
