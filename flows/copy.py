"""Copy missing objects from a source to a storage.

``python -m flows.copy s3://source/prefix s3://storage/prefix``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("copy"))  # which imports this module again, with Prefect

from typing import Any, Literal

from prefect import flow
from pydantic import StrictBool

from flows.runs.flow_run import flow_run
from flows.runs.form import NO_OTHER_CLUSTER, ClusterName, OtherCluster, run_name
from larder.cli.copy import COPY


@flow(
    name="copy",
    flow_run_name=run_name("copy {source} to {storage}"),
    persist_result=False,
    validate_parameters=True,
)
def copy(
    source: str,
    storage: str,
    cluster: ClusterName | None = None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    verify: Literal["digest", "size"] | None = None,
    plan: StrictBool = False,
    advanced: OtherCluster = NO_OTHER_CLUSTER,
) -> Any:
    """Copy what is missing from a source to a storage.

    Args:
        source: URL or path of what is copied.
        storage: URL or path of where it is copied to.
        cluster: Name of a file in configs/clusters, for its limits and how its storage is reached.
        include: Globs of the keys to copy; everything if there is none.
        exclude: Globs of keys to leave out.
        verify: How copies are checked, digest or size; by default what copy.verify says.
        plan: Whether to show what would be done, and change nothing.
        advanced: What is rarely needed.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return flow_run(COPY)
