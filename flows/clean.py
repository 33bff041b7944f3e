"""Delete versions that nothing needs, and the data that only such versions need.

``python -m flows.clean digits --keep 3``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("clean"))  # which imports this module again, with Prefect

from typing import Annotated, Any

from prefect import flow
from pydantic import Field, StrictBool, StrictInt

from flows.runs.flow_run import flow_run
from flows.runs.form import NO_OTHER_NAMES, ClusterName, DatasetName, OtherNames, run_name
from larder.cli.clean import CLEAN


@flow(
    name="clean",
    flow_run_name=run_name("clean {dataset}"),
    persist_result=False,
    validate_parameters=True,
)
def clean(
    dataset: DatasetName,
    keep: Annotated[StrictInt, Field(ge=1)],
    older_than: str = "0h",
    grace: str = "24h",
    mirror: StrictBool = False,
    cluster: ClusterName | None = "local",
    storage: str | None = None,
    plan: StrictBool = False,
    advanced: OtherNames = NO_OTHER_NAMES,
) -> Any:
    """Delete versions that are neither among the newest nor named by a tag or a lease.

    Args:
        dataset: Name of the dataset.
        keep: Number of the newest versions that stay.
        older_than: Of the others, those that were published so long ago, such as 30d.
        grace: How long what may go is announced before a later run deletes it.
        mirror: Whether mirrored objects go that no version was made from that stays, if they are in
            the source, too, or the dataset file excludes them.
        cluster: Name of a file in configs/clusters.
        storage: URL of the storage; by default that of the cluster.
        plan: Show what would be done, and do nothing.
        advanced: What is rarely needed.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return flow_run(CLEAN)
