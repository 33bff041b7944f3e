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

from flows.runs.flow_run import flow_run
from larder.cli.prepare import COMPACT


@flow(
    name="compact",
    flow_run_name="compact {dataset} for {cluster}",
    persist_result=False,
    validate_parameters=True,
)
def compact(
    dataset: str,
    cluster: str = "local",
    settings: list[str] | None = None,
    config_dir: str = "configs",
    output: str | None = None,
) -> Any:
    """Put all samples of a dataset into one segment: prepare it, and leave no omitted rows.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        settings: key.path=value pairs that override the dataset file, or the cluster file with
            the prefix cluster.
        config_dir: The directory with all configuration files.
        output: Where configs are written; by default out/CLUSTER/DATASET.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return flow_run(COMPACT)
