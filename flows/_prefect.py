"""How Prefect is set up for Larder, before it is imported. What the user has set stays."""

from __future__ import annotations

import os

__all__ = ["configure_prefect", "has_server"]

DEFAULTS = {
    # The ephemeral server takes half a minute to start on two slow cores; Prefect allows 20 s.
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DO_NOT_TRACK": "1",
    # Progress is shown by the display; what goes wrong still comes through.
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "ERROR",
}


def has_server() -> bool:
    """Whether a Prefect server is named that wants to see every run."""
    return bool(os.environ.get("PREFECT_API_URL"))


def configure_prefect() -> None:
    """Set Prefect's environment variables where the user has not."""
    for name, value in DEFAULTS.items():
        os.environ.setdefault(name, value)
