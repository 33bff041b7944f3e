"""Deploy the flows of deployments/prefect.yaml to a work pool of a Prefect server.

``python -m flows.deploy --pool NAME``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.deploy_command import deploy_command

    raise SystemExit(deploy_command())  # which imports this module again, with Prefect

from dataclasses import asdict
from typing import Any

from prefect import flow

from flows.runs.deployments import deploy_all
from flows.runs.run_page import summary


@flow(name="deploy", flow_run_name="deploy to {pool}", persist_result=False)
def deploy(pool: str, directory: str | None = None, team: str = "") -> dict[str, Any]:
    """Deploy again if the config folder has changed, so that forms offer new names.

    Args:
        pool: Name of the work pool.
        directory: Where the checkout is on the machines that run the flows.
        team: A suffix of the deployments' names.

    Returns:
        What was deployed: ``pool``, ``names`` and ``workers``.
    """
    deployed = deploy_all(pool, directory, team=team, changed_only=True)
    summary("deploy", deployed.lines())
    return asdict(deployed)
