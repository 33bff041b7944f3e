"""What runs the steps of a run: this process, or an orchestrator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from larder.progress import Progress, TimedProgress


class Runner(Protocol):
    """Runs steps: inline, or as the tasks of an orchestrator.

    A step is a function of `larder.pipeline` that takes small values, and ``progress`` by name. A
    step over batches takes the job, a batch, and ``concurrent_batches``, the number of concurrent
    batches.
    """

    @property
    def progress(self) -> Progress:
        """Receives the progress of the stages."""

    @property
    def times(self) -> TimedProgress:
        """The times of the stages so far."""

    def run(self, step: Callable[..., Any], *arguments: Any) -> Any:
        """The result of one step."""

    def map(self, step: Callable[..., Any], job: Any, batches: Sequence[Any]) -> list[Any]:
        """The results of a step for each batch, in order; runs several at once.

        If too much fails in a batch (`larder.pipeline.results.stops_others`), no further one is
        started, and the results of those are None.
        """
