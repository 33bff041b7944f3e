"""Put all samples of a dataset into one segment.

``python -m flows.compact --dataset digits``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("compact"))  # which imports this module again, with Prefect

from typing import Any

from prefect import flow
from pydantic import StrictBool

from flows.runs.flow_run import flow_run
from flows.runs.form import NO_OUTPUT, ClusterName, DatasetName, Output, run_name
from larder.cli.prepare import COMPACT


@flow(
    name="compact",
    flow_run_name=run_name("compact {dataset} for {cluster}"),
    persist_result=False,
    validate_parameters=True,
)
def compact(
    dataset: DatasetName,
    cluster: ClusterName = "local",
    plan: StrictBool = False,
    advanced: Output = NO_OUTPUT,
) -> Any:
    """Put all samples of a dataset into one segment: prepare it, and leave no omitted rows.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        plan: Whether to show what would be done, and change nothing.
        advanced: What is rarely needed.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return flow_run(COMPACT)
