"""A Prefect server that runs, asked through its REST API."""

import http.client
import json
import time
from base64 import b64encode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import wait_until

POLL_SECONDS = 0.1
FINAL = ("COMPLETED", "FAILED", "CRASHED", "CANCELLED")

PROMPT = {
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    "PREFECT_WORKER_PREFETCH_SECONDS": "2",
    "PREFECT_RUNNER_POLL_FREQUENCY": "1",
    "PREFECT_LOGGING_TO_API_BATCH_INTERVAL": "0.5",
    "PREFECT_SERVER_DEPLOYMENTS_CONCURRENCY_SLOT_WAIT_SECONDS": "4",
    "PREFECT_SERVER_SERVICES_REPOSSESSOR_LOOP_SECONDS": "2",
    "PREFECT_SERVER_SERVICES_TASK_RUN_RECORDER_FLUSH_INTERVAL": "1",
}
"""Settings of Prefect: what waits for something looks again sooner than by default."""


@dataclass(frozen=True)
class PrefectServer:
    """A Prefect server that runs on 127.0.0.1; ``home`` is its PREFECT_HOME.

    ``auth`` is the USER:PASSWORD that it asks for, if it does.
    """

    port: int
    home: Path
    auth: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/api"

    def get(self, path: str) -> Any:
        return self._request("GET", path)

    def post(self, path: str, question: dict[str, Any]) -> Any:
        return self._request("POST", path, json.dumps(question))

    def patch(self, path: str, fields: dict[str, Any]) -> None:
        self._request("PATCH", path, json.dumps(fields))

    def delete(self, path: str) -> None:
        self._request("DELETE", path)

    def _request(self, method: str, path: str, body: str | None = None) -> Any:
        """The answer to a request, made again where the database was busy, as Prefect does."""
        headers = {"Content-Type": "application/json"}
        if self.auth:
            headers["Authorization"] = f"Basic {b64encode(self.auth.encode()).decode()}"
        status, answered = http.HTTPStatus.SERVICE_UNAVAILABLE.value, b""
        for _ in range(100):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            try:
                connection.request(method, f"/api{path}", body, headers)
                answer = connection.getresponse()
                status, answered = answer.status, answer.read()
            except TimeoutError:
                continue
            finally:
                connection.close()
            if status != http.HTTPStatus.SERVICE_UNAVAILABLE:
                break
            time.sleep(POLL_SECONDS)
        assert status < 300, answered
        return json.loads(answered or b"null")

    def answers(self) -> bool:
        with suppress(OSError):
            return bool(self.get("/health"))
        return False

    def has(self, deployment: str) -> bool:
        """Whether a deployment ``FLOW/NAME`` exists."""
        flow, name = deployment.split("/")
        named = {"deployments": {"name": {"any_": [name]}}, "flows": {"name": {"any_": [flow]}}}
        return bool(self.post("/deployments/filter", named))

    def submit(self, deployment: str, form: dict[str, Any], **fields: Any) -> dict[str, Any]:
        """Submit the form of a deployment ``FLOW/NAME``, as the UI does; returns the run."""
        found = self.get(f"/deployments/name/{deployment}")
        path = f"/deployments/{found['id']}/create_flow_run"
        run: dict[str, Any] = self.post(path, {"parameters": form, **fields})
        return run

    def ended(self, run: dict[str, Any]) -> dict[str, Any]:
        """A flow run, once it has a final state."""
        states: list[dict[str, Any]] = []

        def final() -> bool:
            states.append(self.get(f"/flow_runs/{run['id']}"))
            return states[-1]["state_type"] in FINAL

        wait_until(final)
        return states[-1]

    def flow_runs(self, name: str) -> list[dict[str, Any]]:
        named = {"flow_runs": {"name": {"any_": [name]}}, "sort": "START_TIME_ASC"}
        runs: list[dict[str, Any]] = self.post("/flow_runs/filter", named)
        return runs

    def task_runs(
        self, flow_run: dict[str, Any], count: int, states: Sequence[str] = FINAL
    ) -> list[dict[str, Any]]:
        """The task runs of a flow run in one of ``states``, once there are ``count`` of them.

        They come to the server as events, and may do so a little after their flow run.
        """
        question = {
            "flow_runs": {"id": {"any_": [flow_run["id"]]}},
            "task_runs": {"state": {"type": {"any_": list(states)}}},
        }
        runs: list[dict[str, Any]] = []
        for _ in range(600):
            runs = self.post("/task_runs/filter", question)
            if len(runs) >= count:
                break
            time.sleep(POLL_SECONDS)
        return runs

    def logs(self, flow_run: dict[str, Any], awaited: str) -> list[str]:
        """The lines of a flow run's log in their order, once one begins with ``awaited``."""
        question = {"logs": {"flow_run_id": {"any_": [flow_run["id"]]}}, "sort": "TIMESTAMP_ASC"}
        lines: list[str] = []
        for _ in range(2_400):
            lines = [log["message"] for log in self.post("/logs/filter", question)]
            if any(line.startswith(awaited) for line in lines):
                return lines
            time.sleep(POLL_SECONDS)
        raise AssertionError(f"no line begins with {awaited!r}: {lines}")
