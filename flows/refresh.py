"""Prepare the datasets whose sources have changed.

``python -m flows.refresh``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("refresh"))  # which imports this module again, with Prefect

from typing import Any

from prefect import flow

from flows.runs.flow_run import flow_run
from flows.runs.form import NO_OTHER_DATASETS, ClusterName, DatasetName, OtherDatasets, run_name
from larder.cli.refresh import REFRESH


@flow(
    name="refresh",
    flow_run_name=run_name("refresh for {cluster}"),
    persist_result=False,
    validate_parameters=True,
)
def refresh(
    datasets: list[DatasetName] | None = None,
    cluster: ClusterName = "local",
    advanced: OtherDatasets = NO_OTHER_DATASETS,
) -> Any:
    """Prepare the datasets whose sources have changed, one after the other.

    Args:
        datasets: Names of files in configs/datasets; all by default.
        cluster: Name of a file in configs/clusters.
        advanced: What is rarely needed.

    Returns:
        The JSON document of the run, with those of the datasets; if it was stopped, Prefect's state
        Cancelled. If a dataset fails, the others are prepared, and then the run fails.
    """
    return flow_run(REFRESH)
