"""A limit's slot that the server grants at the moment at which the run is interrupted."""

from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext
from typing import Any
from uuid import uuid4

import pytest

from flows.runs import limits

RUN, LEASE = uuid4(), uuid4()


def test_a_slot_that_is_granted_before_anybody_waits_for_it_is_given_back(monkeypatch):
    granted: list[str] = []
    given_back: list[tuple[Any, ...]] = []

    class Interrupted(ThreadPoolExecutor):
        def submit(self, *arguments: Any, **options: Any) -> Any:
            future = super().submit(*arguments, **options)
            wait([future])
            if granted:
                raise KeyboardInterrupt
            return future

    def lease(name: str) -> Any:
        granted.append(name)
        return LEASE

    monkeypatch.setattr(limits, "ThreadPoolExecutor", Interrupted)
    monkeypatch.setattr(limits, "_exists", bool)
    monkeypatch.setattr(limits, "_lease", lease)
    monkeypatch.setattr(limits, "_give_back", lambda _, *which: given_back.append(which))
    monkeypatch.setattr(limits, "get_client", lambda **_: nullcontext())
    monkeypatch.setattr(limits, "run_id", lambda: RUN)
    monkeypatch.setattr(limits, "change_tags", lambda **_: None)
    with pytest.raises(KeyboardInterrupt), limits.dataset_limit("d", print):
        pass
    assert given_back == [(RUN, "larder-d", LEASE)]
