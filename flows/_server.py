"""A Prefect server for the length of one run, where no server is named.

Prefect would start one by itself, but one that Ctrl-C ends before the run, which then waits a
minute for it; that stays behind when the run is killed; and that may write to stdout, where the
result goes. This one starts while the run imports Prefect, and ends with the run however that ends.
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

__all__ = ["TemporaryServer"]

STOP_SECONDS = 5.0
BACKLOG_SECONDS = 120.0
"""What it may take to write down what it was told: some 30 ms for each task run."""
_POLL_SECONDS = 0.1
_HOST = "127.0.0.1"
_LAST_WORDS = 2000
_ERROR = re.compile(r"[\w.]+(Error|Exception): ")


class TemporaryServer:
    """The server's process. Its history stays in Prefect's own database, below PREFECT_HOME."""

    def __init__(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close
        # Connections wait in the socket's queue until the server takes them: nobody has to poll,
        # and no other process can take the port.
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
        """What PREFECT_API_URL has to be."""
        return f"http://{_HOST}:{self._port}/api"

    @property
    def process(self) -> int:
        """The ID of its process."""
        return self._process.pid

    def wait(self, seconds: float) -> None:
        """Wait until it answers.

        Raises:
            FatalError: ``run.timeout``: it does not; ``run.server``: it ended. With its last error.
        """
        # Not by urllib, which would ask a proxy.
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=seconds)
        try:
            connection.request("GET", "/api/health")
            connection.getresponse().read()
        except (OSError, http.client.HTTPException) as error:
            message = f"Prefect's temporary server did not start: {self._last_error() or error}"
            hint = "start one with `prefect server start`, and name it by PREFECT_API_URL"
            code = "run.timeout" if isinstance(error, TimeoutError) else "run.server"
            raise FatalError(code, message, hint=hint) from error
        finally:
            connection.close()

    def close(self) -> None:
        """Let it end; a second call does nothing.

        It writes down what it was told, for which nobody has to wait, and then ends; see `_serve`.
        """
        assert self._process.stdin is not None, "it is a pipe"
        self._process.stdin.close()
        self._log.close()
        # It is nobody's child to wait for: without this, Python would warn that it still runs.
        self._process.returncode = self._process.poll() or 0

    def _last_error(self) -> str:
        self._log.seek(0)
        lines = self._log.read()[-_LAST_WORDS:].decode("utf-8", "replace").split("\n")
        errors = [line for line in lines if _ERROR.match(line)]
        return (errors or [line.strip() for line in lines if line.strip()] or [""])[-1]


def _serve(listener: socket.socket) -> None:
    """Serve until stdin ends: the run closed it, or is no more."""
    run = threading.Thread(target=sys.stdin.buffer.read, daemon=True)
    run.start()
    import uvicorn  # Prefect brings it
    from prefect.server.api.server import create_app
    from prefect.server.utilities.messaging.memory import METRICS
    from prefect.settings import get_current_settings

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            # The first server makes the database's tables; two at once would fail.
            with _locked(get_current_settings().home):
                await super().startup(sockets)

    app = create_app(ephemeral=True, final=True)
    config = uvicorn.Config(app, log_level="error", lifespan="on", timeout_graceful_shutdown=2)
    server = Server(config)

    def busy() -> bool:
        # The states of task runs come as events. Prefect drops those that wait when it stops.
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
