"""Runs that end early: who has the slot that another waits for, and what a crash says."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from prefect.client.schemas.objects import FlowRun
from prefect.states import Crashed

from flows.runs import limits, prefect_workers
from flows.runs.run_page import AGAIN

RUN = FlowRun(flow_id=uuid4(), name="the first")


@pytest.mark.parametrize(
    ("tagged", "said"),
    [
        ([[], [], [], [RUN]], "the first ("),  # it had the slot before it had the tag
        ([[]], None),  # it was killed, and its slot is given back at once
    ],
)
def test_a_waiting_run_names_the_run_with_the_slot(monkeypatch, tagged, said):
    polls, lines, lease = iter(tagged), [], uuid4()
    answers = iter([*[None] * len(tagged), lease])
    clock = SimpleNamespace(now=0.0)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    fake_time = SimpleNamespace(monotonic=lambda: clock.now, sleep=sleep)
    limit = SimpleNamespace(active_slots=1)
    client = SimpleNamespace(read_global_concurrency_limit_by_name=lambda _: limit)
    monkeypatch.setattr(limits, "time", fake_time)
    monkeypatch.setattr(limits, "get_client", lambda **_: nullcontext(client))
    monkeypatch.setattr(limits, "_runs_with", lambda *_: next(polls))
    monkeypatch.setattr(limits, "free_slots_of_killed_runs", lambda _: None)
    monkeypatch.setattr(limits, "_lease", lambda _: next(answers))
    assert limits._acquire("larder-d", lines.append) == lease
    assert [said in line for line in lines] == ([True] if said else [])


def test_a_crash_that_prefect_reports_says_what_to_do():
    states: dict[Any, str] = {}
    killed = "Process exited with status code: -9."
    texts = [killed, f"stopped between two objects; {AGAIN}", None, killed]
    runs = [
        FlowRun(flow_id=uuid4(), state_id=uuid4(), state=Crashed(message=text)) for text in texts
    ]
    now = {run.id: run for run in runs} | {runs[3].id: RUN}
    client = SimpleNamespace(
        read_flow_runs=lambda **_: runs,
        read_flow_run=now.__getitem__,
        set_flow_run_state=lambda run, state, **_: states.update({run: state.message}),
    )
    prefect_workers.explain_crashes(client, "larder")
    assert runs[1].id not in states, "these are Larder's words"
    assert all(text.endswith(AGAIN) for text in states.values())
    assert "status code: -9" in states[runs[0].id]
    assert runs[3].id not in states, "this run was started again meanwhile"
    assert len(states) == 2
