"""What tasks share: their options, and how they end when the run is stopped.

The store repeats calls. In addition, a task is repeated at most twice, and only if that can help:
if a store kept failing, or after an unexpected error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.states import Cancelled
from prefect.tasks import Task, exponential_backoff

from larder.errors import LarderError, RetryableError

STOPPED = "run.interrupted"
"""The code of the error that a step raises when it is asked to stop."""

SUPERSEDED = "version.superseded"
"""That of the error which makes the run start again, because another run has moved the tag."""

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _worth_repeating(_task: Task[Any, Any], _run: TaskRun, state: State[Any]) -> bool:
    error = state.result(raise_on_failure=False)
    foreseen = isinstance(error, LarderError) and not isinstance(error, RetryableError)
    return isinstance(error, Exception) and not foreseen


def cancelled_when_stopped(step: Callable[_P, _R]) -> Callable[_P, _R | State[Any]]:
    """A function whose run Prefect shows as Cancelled, not Failed, when it is asked to stop.

    The same if another run supersedes it: then the state's name is Superseded. The result of either
    state is still the error, which is raised when the result is requested.
    """

    @wraps(step)
    def stopped(*arguments: _P.args, **named: _P.kwargs) -> _R | State[Any]:
        try:
            return step(*arguments, **named)
        except LarderError as error:
            if error.code not in (STOPPED, SUPERSEDED):
                raise
            name = "Superseded" if error.code == SUPERSEDED else "Cancelled"
            return Cancelled(name=name, message=error.message, data=error)

    return stopped


def call(task: Task[Any, Any], *arguments: Any) -> Any:
    """Run a task in this process, and raise its error, if any."""
    state: Any = task(*arguments, return_state=True)
    return state.result()


LOCAL: dict[str, Any] = {"cache_policy": NO_CACHE, "persist_result": False, "log_prints": False}
"""Results stay in the process: they are small values, and manifests are passed by reference."""

RETRIED: dict[str, Any] = {
    **LOCAL,
    "retries": 2,
    "retry_delay_seconds": exponential_backoff(backoff_factor=5),
    "retry_jitter_factor": 0.5,
    "retry_condition_fn": _worth_repeating,
}
"""For tasks that may be repeated, because their step writes receipts and continues from them."""
