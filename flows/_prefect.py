"""How Prefect is set up for Larder. What the user has set stays.

This module does not import Prefect, because that alone takes seconds.
"""

from __future__ import annotations

import atexit
import logging
import os
import tomllib
from collections.abc import Callable
from pathlib import Path

__all__ = ["configure_prefect", "has_server", "show_logs", "start_server"]

STARTUP_SECONDS = "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"

DEFAULTS = {
    # A server takes half a minute to start on two slow cores; Prefect allows it 20 s.
    STARTUP_SECONDS: "120",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # Progress is shown by the display; what goes wrong still comes through.
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}
_API_URL = "PREFECT_API_URL"
_OF_RUNS = ("prefect.flow_runs", "prefect.task_runs")


def has_server() -> bool:
    """Whether a Prefect server is named that wants to see every run.

    In the environment, or in Prefect's active profile: `prefect config set` and
    `prefect cloud login` write there.
    """
    if os.environ.get(_API_URL):
        return True
    home = Path(os.environ.get("PREFECT_HOME", "~/.prefect")).expanduser()
    path = Path(os.environ.get("PREFECT_PROFILES_PATH", home / "profiles.toml")).expanduser()
    try:
        profiles = tomllib.loads(path.read_text(encoding="utf-8"))
        name = os.environ.get("PREFECT_PROFILE", profiles.get("active"))
        return bool(profiles.get("profiles", {}).get(name, {}).get(_API_URL))
    except (OSError, ValueError, AttributeError, TypeError):  # none, or nonsense: Prefect complains
        return False


def configure_prefect() -> None:
    """Set Prefect's environment variables where the user has not. Call it before the import."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)


def start_server() -> Callable[[], None]:
    """Start a temporary server that Prefect, imported after this, reports to.

    Returns:
        A function that waits until the server answers; see `flows._server.TemporaryServer.wait`.
    """
    from flows._server import TemporaryServer

    server = TemporaryServer()
    # At exit, and registered before Prefect's own: it sends its last logs and events at exit too.
    atexit.register(server.close)
    os.environ[_API_URL] = server.url
    for name in ("no_proxy", "NO_PROXY"):  # Prefect's client would ask a proxy for it
        os.environ[name] = ",".join(filter(None, (os.environ.get(name), "127.0.0.1")))
    seconds = float(os.environ.get(STARTUP_SECONDS, DEFAULTS[STARTUP_SECONDS]))
    return lambda: server.wait(seconds)


def show_logs(say: Callable[[str], None]) -> None:
    """Let ``say`` show what Prefect logs, instead of Prefect's own handlers. Call it after import.

    An error of a run is left out: it is raised as well, and the command tells it once.
    """
    handler = _Lines(say)
    for name in (None, "prefect._internal"):
        logging.getLogger(name).handlers[:] = [handler]


class _Lines(logging.Handler):
    """Shows a record as one line."""

    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__()
        self._say = say

    def emit(self, record: logging.LogRecord) -> None:
        if record.name in _OF_RUNS and record.levelno >= logging.ERROR:
            return
        self._say(f"{record.levelname.lower()}: {' '.join(record.getMessage().split())}")
