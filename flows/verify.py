"""Read a published version again, and repair damage.

``python -m flows.verify --dataset digits``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("verify"))  # which imports this module again, with Prefect

from typing import Annotated, Any

from prefect import flow
from pydantic import Field, StrictBool, StrictFloat, StrictInt

from flows.runs.flow_run import flow_run
from flows.runs.form import NO_OTHER_NAMES, ClusterName, DatasetName, OtherNames, run_name
from larder.cli.verify import VERIFY


@flow(
    name="verify",
    flow_run_name=run_name("verify {dataset} for {cluster}"),
    persist_result=False,
    validate_parameters=True,
)
def verify(
    dataset: DatasetName,
    cluster: ClusterName = "local",
    version: str = "latest",
    sample: Annotated[StrictFloat, Field(gt=0, le=100)] | None = None,
    seed: StrictInt | None = None,
    repair: StrictBool = False,
    advanced: OtherNames = NO_OTHER_NAMES,
) -> Any:
    """Read a published version again, and compare it with what was published.

    Args:
        dataset: Name of a file in configs/datasets.
        cluster: Name of a file in configs/clusters.
        version: ID of the version, or a tag.
        sample: Percentage of the shards and cache files to read; all by default.
        seed: Of the choice of these; another one for every run by default.
        repair: Whether to make again what is damaged.
        advanced: What is rarely needed.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled. If something is
        damaged, the run fails, and its findings are a table.
    """
    return flow_run(VERIFY)
