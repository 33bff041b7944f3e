"""Gets Prefect ready for a flow run in this process. Does not import Prefect by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from flows._prefect import configure_prefect, has_server, show_logs, start_server
from flows._settings import load_prefect

if TYPE_CHECKING:
    from larder.cli.display import Display


@contextmanager
def prefect_ready(display: Display) -> Iterator[Callable[[], bool]]:
    """Configure Prefect and start a temporary server if none is configured, for a ``with`` block.

    Yields:
        A function to call once the block has imported its flow: it waits for the server, and
        returns whether the user configured it.
    """
    display.start("prefect")
    display.note("prefect", "importing")
    hidden = configure_prefect()
    wait = None if has_server() else start_server()
    with hidden.guard():
        for line in load_prefect():
            display.say(hidden(line))

        def ready() -> bool:
            show_logs(display.say, hidden)
            if wait:
                display.note("prefect", "starting a server")
                wait()
            return wait is None

        yield ready
