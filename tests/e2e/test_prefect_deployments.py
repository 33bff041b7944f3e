"""What people do in Prefect's UI: start the flow by a deployment, read its log, cancel it."""

import re
from collections.abc import Callable
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
COMMAND = f"{ENDLESS}\nimport sys\nfrom flows.runs.command import flow_command\n"
COMMAND += 'sys.exit(flow_command("prepare"))\n'
EXECUTE = ("-m", "prefect", "flow-run", "execute")
WORKERS = 2


@pytest.fixture
def deployed(
    reporting: Workplace, prefect_server: PrefectServer, request: pytest.FixtureRequest
) -> Callable[..., str]:
    """Makes a deployment of a dataset of its own; gives the ID of a run of it."""

    def make(entrypoint: str = "flows.prepare.prepare") -> str:
        name = re.sub(r"[^a-z]+", "-", request.node.name.lower())[-40:].strip("-")
        configs = reporting.folder / "configs"
        text = (configs / "datasets/imagenet.yaml").read_text()
        text = text.replace("name: imagenet", f"name: {name}")
        text = text.replace("mirror: auto", "mirror: true")
        assert "bytes: 150 MB" in text
        (configs / f"datasets/{name}.yaml").write_text(text.replace("150 MB", "200 kB"))
        cluster = configs / "clusters/local.yaml"
        limits = f"runner: {{workers: {WORKERS}, batch_bytes: 200 kB}}"
        cluster.write_text(f"{cluster.read_text()}\n{limits}\n")
        flow = prefect_server.post("/flows/", {"name": "prepare"})
        where = {"directory": str(reporting.folder)}
        deployment = {
            "name": name,
            "flow_id": flow["id"],
            "entrypoint": entrypoint,
            "pull_steps": [{"prefect.deployments.steps.set_working_directory": where}],
            "parameters": {"dataset": name},
        }
        made = prefect_server.post("/deployments/", deployment)
        run = prefect_server.post(f"/deployments/{made['id']}/create_flow_run", {})
        identity: str = run["id"]
        return identity

    return make


def read(server: PrefectServer, run: str) -> dict[str, Any]:
    """A flow run."""
    (found,) = server.post("/flow_runs/filter", {"flow_runs": {"id": {"any_": [run]}}})
    flow_run: dict[str, Any] = found
    return flow_run


def most_at_once(tasks: list[dict[str, Any]]) -> int:
    """How many of the task runs overlapped, at most."""
    moments = [(task["start_time"], 1) for task in tasks]
    moments += [(task["end_time"], -1) for task in tasks]
    at_once = most = 0
    for _, step in sorted(moments):  # at the same moment, an end comes first
        at_once += step
        most = max(most, at_once)
    return most


def test_a_deployment_keeps_the_limits_of_the_cluster_file_and_logs_its_stages(
    reporting, prefect_server, deployed
):
    identity = deployed()
    done = reporting.run(identity, python=EXECUTE)
    assert done.status == 0, done.err
    run = read(prefect_server, identity)
    assert run["state_type"] == "COMPLETED", (run["state"]["message"], done.err)
    dataset = run["parameters"]["dataset"]

    root = reporting.storage / "larder" / dataset
    batches = {
        "copy": copy_batches(root, 200_000),
        "shards": len(list(root.glob("segments/*/work/shards/*/*.parquet"))),
    }
    tasks = prefect_server.task_runs(run, sum(batches.values()) + 8)
    for kind, count in batches.items():
        of_kind = [task for task in tasks if re.match(rf"{kind} (objects?|from) ", task["name"])]
        assert len(of_kind) == count > 2 * WORKERS
        assert most_at_once(of_kind) <= WORKERS

    (version,) = check_all(open_store(str(root)))
    config = reporting.folder / f"out/local/{dataset}/experiment.yaml"
    assert config.is_file()
    lines = prefect_server.logs(run, f"{dataset} built: version {version}")
    for beginning in ("inventory: started", "mirror: started", "shard: done", "publish: done"):
        assert [line for line in lines if line.startswith(beginning)], (beginning, lines)
    assert f"  config   {config}" in lines
    assert f"{dataset} built: version {version}" in "\n".join(lines)


def cancel(server: PrefectServer, run: str) -> None:
    """What the UI's button does."""
    server.post(f"/flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}})


def test_a_deployed_run_is_cancelled_between_two_objects(reporting, prefect_server, deployed):
    (reporting.folder / "endless.py").write_text(DEPLOYED)
    identity = deployed("endless.py:prepare")
    running = reporting.start(identity, python=EXECUTE)
    prefect_server.logs({"id": identity}, "mirror: started")
    cancel(prefect_server, identity)
    running.wait()
    run = read(prefect_server, identity)
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
    run = read(prefect_server, identity)
    assert run["state_type"] == "CANCELLED", run["state"]
    tasks = prefect_server.task_runs(run, 4)
    assert sorted(task["state_type"] for task in tasks) == ["CANCELLED"] * 2 + ["COMPLETED"] * 2
    assert not list(reporting.storage.glob("larder/imagenet/versions/*/version.json"))
