"""A limit's slot that the server grants to a waiting run while the run is asked to stop."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from flows.runs import limits
from tasks.run_progress import stoppable


def test_a_slot_that_is_granted_to_a_stopped_run_is_known_to_its_caller(monkeypatch):
    """The caller gives the slot back."""
    granted = uuid4()
    answers = iter([None, granted])
    limit = SimpleNamespace(active_slots=1)
    client = SimpleNamespace(read_global_concurrency_limit_by_name=lambda _: limit)
    monkeypatch.setattr(limits, "get_client", lambda **_: nullcontext(client))
    monkeypatch.setattr(limits, "_runs_with", lambda *_: [None])
    monkeypatch.setattr(limits, "_described", lambda *_: "a run has it")
    monkeypatch.setattr(limits, "_POLL_SECONDS", 0)
    with stoppable() as stop:

        def lease(_: str) -> Any:
            if answer := next(answers):
                stop.set()
            return answer

        monkeypatch.setattr(limits, "_lease", lease)
        assert limits._acquire("larder-d", print) == granted
