"""Which server is that of `flows.serve`, and which of its runs have ended without a final state."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from unittest import mock
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Cancelling, Pending, Running

from flows.runs import serve_command
from flows.runs.prefect_workers import PENDING_SECONDS, is_dead
from flows.runs.service_processes import running_groups
from larder.errors import FatalError
from tests.support.errors import larder_error
from tests.support.http_server import Ask, Say, answering


@pytest.fixture(scope="module")
def ended() -> str:
    """The ID of a process group that is no more."""
    with subprocess.Popen([sys.executable, "--version"], start_new_session=True) as process:
        process.wait()
        return str(process.pid)


def ended_silently(state, age_seconds, pid):
    state.timestamp = datetime.now(UTC) - timedelta(seconds=age_seconds)
    run = FlowRun(flow_id=uuid4(), state=state, infrastructure_pid=pid)
    return is_dead(run, running_groups())


def test_a_run_is_dead_without_its_process(ended):
    for state in (Running(), Cancelling()):
        assert ended_silently(state, 0, ended)
        assert not ended_silently(state, 0, str(os.getpgrp()))
        assert not ended_silently(state, 0, None), "it is not known"
        assert not ended_silently(state, 0, "a container"), "it is not of this machine"


def test_a_pending_run_may_take_some_minutes_to_get_its_process(ended):
    for pid in (None, ended):
        assert not ended_silently(Pending(), PENDING_SECONDS / 2, pid)
        assert ended_silently(Pending(), PENDING_SECONDS + 1, pid)
    assert not ended_silently(Pending(), PENDING_SECONDS + 1, str(os.getpgrp()))


@pytest.mark.parametrize(
    ("status", "answered", "is_ours"),
    [(200, "{}", True), (200, "{}/elsewhere", False), (401, "{}", False), (200, "", False)],
)
def test_a_server_of_another_folder_is_refused(tmp_path, status, answered, is_ours):
    """It took the port after that was chosen, so ours ends soon."""

    def answer(ask: Ask) -> Say:
        home = answered.format(tmp_path)
        body = json.dumps({"home": home}).encode() if home else b"no JSON"
        return Say(status if ask.path == "/api/admin/settings" else 200, body)

    with ExitStack() as stack:
        url = stack.enter_context(answering(answer))
        stack.enter_context(temporary_settings({PREFECT_API_URL: f"{url}/api"}))
        if not is_ours:
            stack.enter_context(larder_error("run.server", "server.log"))
        serve_command._await(mock.Mock(log="server.log"), tmp_path)


def test_a_server_that_ends_while_it_is_awaited_is_noticed_at_once(tmp_path):
    """Prefect's client would repeat a cut answer for a minute."""
    asks: list[Ask] = []

    def cut(ask: Ask) -> Say:
        asks.append(ask)
        return Say(body=b"{}", cut=0)

    server = mock.Mock()
    server.check_started.side_effect = [None, FatalError("run.server", "it has ended")]
    with answering(cut) as url, temporary_settings({PREFECT_API_URL: f"{url}/api"}):
        with larder_error("run.server"):
            serve_command._await(server, tmp_path)
        assert len(asks) == 1
