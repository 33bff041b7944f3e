"""Signals while a flow runs; see `larder.cli.signals`, which knows nothing of Prefect."""

from __future__ import annotations

from larder.cli.signals import hear_signals, interruptible

__all__ = ["hear_signals", "interruptible"]
