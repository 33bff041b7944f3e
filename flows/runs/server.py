"""A Prefect server for the duration of one run, if no server is configured.

Ctrl-C would end the server that Prefect starts by itself before the run, which would then wait a
minute for it; and that server would survive a killed run. This server starts while the run imports
Prefect, and always ends with the run.
"""

from __future__ import annotations

import fcntl
import http.client
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from larder.errors import FatalError

STOP_SECONDS = 5.0
BACKLOG_SECONDS = 120.0
"""Maximum time to save the received events: they take about 30 ms per task run."""
_POLL_SECONDS = 0.1
_HOST = "127.0.0.1"
_LAST_WORDS = 2000
_ERROR = re.compile(r"[\w.]+(Error|Exception): ")


class TemporaryServer:
    """The process of the server. Its history remains in Prefect's database, below PREFECT_HOME."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        # Connections wait in the socket's queue until the server accepts them. So polling is not
        # needed, and no other process can take the port.
        with socket.create_server((_HOST, 0)) as listener:
            self._port: int = listener.getsockname()[1]
            self._process = subprocess.Popen(  # noqa: S603 - this module
                [sys.executable, "-m", __name__, str(listener.fileno())],
                pass_fds=[listener.fileno()],
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,  # Ctrl-C is for the run, which still has to report
            )

    @property
    def url(self) -> str:
        return f"http://{_HOST}:{self._port}/api"

    def wait(self, seconds: float) -> None:
        """Wait until the server answers; ``run.timeout``, or ``run.server`` if it ended."""
        # Not with urllib, which would use a proxy.
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=seconds)
        try:
            connection.request("GET", "/api/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            message = f"Prefect's temporary server did not start: {self._last_error() or error}"
            late = isinstance(error, TimeoutError)
            code, hint = ("run.timeout", "run it again") if late else ("run.server", ended_hint())
            raise FatalError(code, message, hint=hint) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Let the server save the events that it has, and end, without waiting; see `_serve`."""
        assert self._process.stdin is not None, "stdin is a pipe"
        self._process.stdin.close()
        self._log.close()
        # Nothing waits for this child: without this, Python would warn that it is still running.
        self._process.returncode = self._process.poll() or 0

    def _last_error(self) -> str:
        self._log.seek(0)
        lines = self._log.read()[-_LAST_WORDS:].decode("utf-8", "replace").split("\n")
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or [line.strip() for line in lines if line.strip()] or [""])[-1]


def ended_hint() -> str:
    """Advise on a server that ended at once; call it after `load_prefect`."""
    from prefect.settings import get_current_settings

    url = get_current_settings().server.database.connection_url
    address = url.get_secret_value() if url else ""
    scheme, _, path = address.partition(":///")
    if not scheme.startswith("sqlite"):  # which may contain a password
        return "check PREFECT_SERVER_DATABASE_CONNECTION_URL"
    return f"if {path} is damaged, or of a newer Prefect, move it elsewhere"


def _serve(listener: socket.socket) -> None:
    """Serve until stdin ends: the run has closed it, or has ended."""
    run = threading.Thread(target=sys.stdin.buffer.read, daemon=True)
    run.start()
    import uvicorn  # installed with Prefect
    from prefect.server.api.server import create_app
    from prefect.server.utilities.messaging.memory import METRICS
    from prefect.settings import get_current_settings

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # The first server creates the tables of the database; two at once would fail.
            with _locked(get_current_settings().home):
                await super().startup(sockets)

    app = create_app(ephemeral=True, final=True)
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=2)
    server = Server(config)

    def busy() -> bool:
        # The states of task runs arrive as events. Prefect drops pending events when it stops.
        waiting = METRICS["events"]["published"] - METRICS["events"]["consumed"]
        return bool(server.server_state.tasks) or waiting > 0

    def end_with_run() -> None:
        run.join()
        enough = time.monotonic() + BACKLOG_SECONDS
        while busy() and time.monotonic() < enough:
            time.sleep(_POLL_SECONDS)
        server.should_exit = True
        threading.main_thread().join(STOP_SECONDS)
        os._exit(1)

    threading.Thread(target=end_with_run, daemon=True).start()
    server.run(sockets=[listener])


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    home.mkdir(parents=True, exist_ok=True)
    with (home / "larder.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
