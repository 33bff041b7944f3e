"""Which runs have ended without a final state."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.states import Cancelling, Pending, Running

from flows.runs.prefect_workers import PENDING_SECONDS, is_dead
from flows.runs.service_processes import running_groups


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
