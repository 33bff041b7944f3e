"""Configures Prefect for Larder, without overriding the user's settings.

Without a file of settings it does not import Prefect, because that alone takes seconds.
"""

from __future__ import annotations

import atexit
import gc
import logging
import os
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from flows.runs.prefect_settings import load_prefect, startup_seconds, user_settings
from flows.runs.secrets import Hidden, auth_of
from larder.errors import ConfigError
from larder.packages import require

if TYPE_CHECKING:
    from larder.cli.display import Display
    from larder.config.models.copy_config import RunnerConfig

SHOWN = "larder_shown"
"""Attribute of a log record that is shown to the user in another way."""

DEFAULTS = {
    # A server takes half a minute to start on two slow cores; Prefect's default timeout is 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # The display shows progress; warnings and errors are still logged.
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}
_LOGGING_LEVEL = "PREFECT_LOGGING_LEVEL"
# The page of a run shows the run's work, whatever the terminal shows.
_RUN_LEVELS = {
    "PREFECT_LOGGING_LOGGERS_PREFECT_FLOW_RUNS_LEVEL": "INFO",
    "PREFECT_LOGGING_LOGGERS_PREFECT_TASK_RUNS_LEVEL": "INFO",
}
_API_URL = "PREFECT_API_URL"
_AUTH = "PREFECT_API_AUTH_STRING"
_SERVER_AUTH = "PREFECT_SERVER_API_AUTH_STRING"
_SECRET = ("PREFECT_API_KEY", _AUTH, _SERVER_AUTH)
CONNECT_SECONDS = 10.0
_HERE = ("127.0.0.1", "::1", "localhost")
_LONGEST = 500
"""Maximum length of a line that is shown: Prefect logs complete events."""
OF_RUNS = ("prefect.flow_runs", "prefect.task_runs")


def has_server() -> bool:
    """Whether a Prefect server is configured, which then gets every run."""
    return bool(user_settings().get(_API_URL))


def configure_prefect() -> Hidden:
    """Set Prefect's environment variables that the user has not set. Call it before the import.

    A password in the server's URL (else ``config.invalid_value``) is moved to a setting that
    Prefect does not show. Returns what hides the secrets of Prefect's configuration.
    """
    settings = user_settings()
    url, auth = auth_of(settings.get(_API_URL, ""), where=_API_URL)
    hidden = Hidden([auth, *(settings.get(name, "") for name in _SECRET)])
    if auth:
        os.environ[_API_URL], os.environ[_AUTH] = url, auth
    debug = settings.get(_LOGGING_LEVEL, "").upper() == "DEBUG"  # which shows more
    for name, value in {**DEFAULTS, **({} if debug else _RUN_LEVELS)}.items():
        if name not in settings:
            os.environ.setdefault(name, value)
    atexit.register(_skip_last_collection)
    return hidden


def _skip_last_collection() -> None:
    """Keep Python's last collection from visiting Prefect's objects, which takes half a second."""
    # DuckDB goes first: it prints objects that are not collected.
    for name in [name for name in sys.modules if name.partition(".")[0] in ("duckdb", "_duckdb")]:
        del sys.modules[name]
    gc.collect()
    gc.freeze()


def need_server() -> Hidden:
    """Call `configure_prefect` if a server is configured, else raise ``config.invalid_value``."""
    if not has_server():
        message, hint = "no Prefect server is configured", "set PREFECT_API_URL; or make serve"
        raise ConfigError("config.invalid_value", message, where=_API_URL, hint=hint)
    return configure_prefect()


def start_server() -> Callable[[], None]:
    """Start a temporary server for Prefect, which must be imported after this.

    Returns a function that waits until the server answers, to be called after that import.
    """
    from flows.runs.server import TemporaryServer

    server = TemporaryServer()
    # At exit, but registered before Prefect's own handler, which sends its last logs and events.
    atexit.register(server.close)
    os.environ[_API_URL] = server.url
    if auth := user_settings().get(_SERVER_AUTH):
        os.environ[_AUTH] = auth
    bypass_proxy()
    return lambda: server.wait(startup_seconds())


def bypass_proxy() -> None:
    """Keep Prefect's client from using a proxy for a server on this machine."""
    for name in ("no_proxy", "NO_PROXY"):
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))


def check_runner(runner: RunnerConfig) -> None:
    """Refuse a cluster that could not run the batches, before a source is listed.

    ConfigError: ``config.missing_package``; ``config.runner``: nothing listens at the address, or
    workers there could not reach Prefect's server.
    """
    if runner.kind == "local":
        return
    require(runner.kind)
    if not runner.address:
        return
    place = urlsplit(runner.address if "://" in runner.address else f"//{runner.address}")
    server = urlsplit(user_settings().get(_API_URL, "")).hostname or _HERE[0]
    if server in _HERE and place.hostname not in _HERE:
        message = "its workers cannot reach Prefect's server on this machine"
        hint = "set PREFECT_API_URL to a server that they reach"
        raise runner_refusal(runner.address, message, hint)
    try:
        socket.create_connection((place.hostname, place.port), CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise runner_refusal(runner.address, f"does not answer: {error}") from None


def runner_refusal(address: str | None, message: str, hint: str = "") -> ConfigError:
    if address and not hint:
        hint = "check cluster.runner.address, and that the cluster runs"
    return ConfigError("config.runner", message, where=address or "this machine", hint=hint)


def show_logs(say: Callable[[str], None], hidden: Hidden) -> None:
    """Show Prefect's log with ``say`` instead of on the console. Call it after the import.

    Errors of a run are left out: they are also raised, and the command reports them once. The
    loggers of runs keep the handler that sends to the server.
    """
    handler = _Lines(lambda line: say(hidden(line)))
    handler.setLevel(logging.getLogger("prefect").level)
    # Otherwise Prefect writes to stderr, into the rows, each time that a log cannot be sent. A
    # server that is gone ends the run, which is reported once.
    logging.raiseExceptions = False
    for name in (None, "prefect._internal"):
        logging.getLogger(name).handlers[:] = [handler]


class _Lines(logging.Handler):
    """Shows a record as one line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        of_run_error = record.name in OF_RUNS and record.levelno >= logging.ERROR
        if of_run_error or getattr(record, SHOWN, False):
            return
        line = f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}"
        self._say(line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ...")


@contextmanager
def prefect_ready(display: Display) -> Iterator[Callable[[], bool]]:
    """Configure Prefect and start a temporary server if none is configured, for a ``with`` block.

    Yields a function to call once the block has imported its flow. It waits for the server, and
    returns whether the user configured the server.
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
