"""Delete copies of objects that are no longer in the source.

``python -m flows.prune s3://source/prefix s3://storage/prefix``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.command import flow_command

    raise SystemExit(flow_command("prune"))  # which imports this module again, with Prefect

from typing import Any

from prefect import flow
from pydantic import StrictInt

from flows.runs.flow_run import flow_run
from flows.runs.form import run_name
from larder.cli.copy import PRUNE


@flow(
    name="prune",
    flow_run_name=run_name("prune {storage} of what is not in {source}"),
    persist_result=False,
    validate_parameters=True,
)
def prune(
    source: str,
    storage: str,
    cluster: str | None = None,
    settings: list[str] | None = None,
    include: list[str] | None = None,
    exclude: list[str] | None = None,
    max_delete: StrictInt | None = None,
    config_dir: str = "configs",
) -> Any:
    """Delete copies of objects that are no longer in the source.

    Args:
        source: URL or path of what was copied.
        storage: URL or path of where it was copied to.
        cluster: Name of a file in configs/clusters, for how its storage is reached.
        settings: key.path=value pairs that set fields of source, storage, copy and runner.
        include: Globs of the keys to look at; everything if there is none.
        exclude: Globs of keys to leave alone.
        max_delete: Delete at most so many objects; by default 1,000, and at most 10 percent.
        config_dir: The directory with all configuration files.

    Returns:
        The JSON document of the run; if it was stopped, Prefect's state Cancelled.
    """
    return flow_run(PRUNE)
