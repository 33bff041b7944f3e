"""Make a tag name a version, also an earlier version to go back.

``python -m flows.tag digits latest ID --pin``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("tag"))  # which imports this module again, with Prefect

from typing import Any

from prefect import flow
from pydantic import StrictBool

from flows.runs.flow_run import flow_run
from flows.runs.form import NO_OTHER_NAMES, ClusterName, DatasetName, OtherNames, run_name
from larder.cli.tag import TAG


@flow(
    name="tag",
    flow_run_name=run_name("tag {dataset}"),
    persist_result=False,
    validate_parameters=True,
)
def tag(
    dataset: DatasetName,
    name: str = "latest",
    version: str | None = None,
    pin: StrictBool | None = None,
    delete: StrictBool = False,
    history: StrictBool = False,
    cluster: ClusterName | None = "local",
    storage: str | None = None,
    advanced: OtherNames = NO_OTHER_NAMES,
) -> Any:
    """Show a tag, make it name a version, or delete it.

    Args:
        dataset: Name of the dataset.
        name: The tag.
        version: ID of the version, its first digits, or another tag; without it, what the tag names
            is shown.
        pin: Whether runs leave the tag where it is; left open, a pinned tag is not moved.
        delete: Delete the tag; its version stays.
        history: List how the tag was moved.
        cluster: Name of a file in configs/clusters.
        storage: URL of the storage; by default that of the cluster.
        advanced: What is rarely needed.

    Returns:
        The JSON document of the run.
    """
    return flow_run(TAG)
