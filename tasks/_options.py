"""The options that tasks share.

The store repeats calls; a task is repeated twice at most on top, and only where that can help: a
store that went on failing, or an error that nobody foresaw.
"""

from __future__ import annotations

from typing import Any

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.tasks import Task, exponential_backoff

from larder.errors import LarderError, RetryableError

__all__ = ["LOCAL", "RETRIED"]


def _worth_repeating(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    foreseen = isinstance(error, LarderError) and not isinstance(error, RetryableError)
    return isinstance(error, Exception) and not foreseen


LOCAL: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "log_prints": False}
"""Results stay in the process: they are small values, and manifests pass by reference."""

RETRIED: dict[str, Any] = {
    **LOCAL,
    "retries": 2,
    "retry_delay_seconds": exponential_backoff(backoff_factor=5),
    "retry_jitter_factor": 0.5,
    "retry_condition_fn": _worth_repeating,
}
"""Of a task that may be repeated: its step leaves receipts and carries on from them."""
