"""A run that is cancelled in Prefect's UI stops in the same way as an interrupted one.

A worker ends the runs that it started itself, but nothing else would end a run started by a
command.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from prefect import get_client

POLL_SECONDS = 5.0


@contextmanager
def cancellable(
    flow_run: UUID, stop: threading.Event, say: Callable[[str], None]
) -> Iterator[None]:
    """Set ``stop`` once the flow run is Cancelling or Cancelled, within a ``with`` block.

    Args:
        flow_run: ID of the flow run.
        stop: Asks the steps to stop.
        say: Shows a line.
    """
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            # A server that is temporarily unavailable must not end the run.
            with suppress(Exception), get_client(sync_client=True) as client:
                state = client.read_flow_run(flow_run).state
                if state and (state.is_cancelling() or state.is_cancelled()):
                    say("cancelled in Prefect: stopping after the objects in progress")
                    stop.set()
                    return

    watcher = threading.Thread(target=watch, name="cancel-watcher", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
