"""A run that waits for a limit: with a slow server, and for a slot of a killed run, or of none."""

import http.client
import json
import threading
from typing import Any

import pytest

from tests.support.http_server import QuietHandler, serving
from tests.support.prefect_server import PrefectServer

pytestmark = pytest.mark.push
PREPARE = """
import sys
from flows.runs import limits
from flows.runs.flow_command import flow_command
limits.ABANDONED_SECONDS = 1.0
sys.exit(flow_command("prepare"))
"""


def proxy(server: PrefectServer, answer_seconds: float) -> type[QuietHandler]:
    """Passes requests on, and is slow to answer those for a slot."""

    class Proxy(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802 - the name is http.server's
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            headers = {"Content-Type": "application/json"}
            connection.request(self.command, self.path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if "increment" in self.path:
                threading.Event().wait(answer_seconds)
            return self.answer(answer.status, content)

        do_POST = do_PATCH = do_PUT = do_DELETE = do_GET  # noqa: N815

    return Proxy


def limit(server: PrefectServer, name: str) -> dict[str, Any]:
    answer: dict[str, Any] = server.get(f"/v2/concurrency_limits/{name}")
    return answer


def test_a_slot_that_no_run_has_is_freed_and_one_that_a_run_has_is_named(
    reporting, prefect_server, named
):
    """A server that was restarted has taken slots, and no leases of them any more."""
    name = named()
    limited = f"larder-{name}"
    prefect_server.post("/v2/concurrency_limits/", {"name": limited, "limit": 1})
    prefect_server.post("/v2/concurrency_limits/increment", {"names": [limited], "slots": 1})
    flow = prefect_server.post("/flows/", {"name": "prepare"})
    state = {"type": "RUNNING", "name": "Running"}
    run = {"flow_id": flow["id"], "name": "the first", "tags": [limited], "state": state}
    first = prefect_server.post("/flow_runs/", run)

    running = reporting.start("--dataset", name, python=("-c", PREPARE))
    line = running.read_until(f"warning: waiting for the limit {limited}: ")
    assert f"the first ({first['id']}), running since " in line
    prefect_server.post(f"/flow_runs/{first['id']}/set_state", {"state": {"type": "CRASHED"}})
    running.read_until(f"warning: no run has the slot of the limit {limited} any more")
    running.read_until("wait: done")
    done = running.wait()
    assert done.status == 0, done.err
    assert "Service" not in json.dumps(done.err)
    assert limit(prefect_server, limited)["active_slots"] == 0


def test_a_slot_of_a_killed_run_is_given_back_and_taken_from_a_slow_server(
    reporting, prefect_server, named
):
    name = named()
    limited = f"larder-{name}"
    prefect_server.post("/v2/concurrency_limits/", {"name": limited, "limit": 1})
    question = {"names": [limited], "slots": 1, "lease_duration": 3600}
    lease = prefect_server.post("/v2/concurrency_limits/increment-with-lease", question)
    flow = prefect_server.post("/flows/", {"name": "prepare"})
    run = {"flow_id": flow["id"], "tags": [limited, "kept"], "labels": {limited: lease["lease_id"]}}
    killed = prefect_server.post("/flow_runs/", run | {"state": {"type": "RUNNING"}})
    prefect_server.post(f"/flow_runs/{killed['id']}/set_state", {"state": {"type": "CRASHED"}})

    with serving(proxy(prefect_server, 3.0)) as url:
        done = reporting.run("--dataset", name, PREFECT_API_URL=f"{url}/api")
    assert done.status == 0, done.err
    assert "no run has the slot" not in done.err
    assert prefect_server.get(f"/flow_runs/{killed['id']}")["tags"] == ["kept"]
    (last,) = prefect_server.flow_runs(f"prepare {name} for local")
    assert (limited in last["labels"], limited in last["tags"]) == (True, False)
    assert limit(prefect_server, limited)["active_slots"] == 0
