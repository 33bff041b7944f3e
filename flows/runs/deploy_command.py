"""``python -m flows.deploy``: deploys the flows of deployments/prefect.yaml."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from flows.runs.configure import need_server
from flows.runs.prefect_settings import load_prefect
from larder.cli.arguments import parser
from larder.cli.exit import run
from larder.cli.output import print_text

_DESCRIPTION = """\
Deploy the flows of deployments/prefect.yaml to a work pool of the Prefect server that
PREFECT_API_URL names, and make the limit larder-DATASET of each dataset there.\
"""


def deploy_command() -> int:
    return run(lambda: main(sys.argv[1:]))


def main(arguments: Sequence[str]) -> int:
    flags = parser("python -m flows.deploy", _DESCRIPTION)
    flags.add_argument("--pool", metavar="NAME", required=True, help="name of the work pool")
    flags.add_argument(
        "--directory",
        metavar="DIR",
        help="where the checkout is on the machines that run the flows (default: this one if the "
        "pool runs processes, else that of deployments/docker/Dockerfile)",
    )
    flags.add_argument(
        "--changed-only",
        action="store_true",
        help="do nothing if neither the file nor the names in configs/ have changed",
    )
    flags.add_argument(
        "--diff",
        action="store_true",
        help="show how the server differs from the file, and change nothing",
    )
    flags.add_argument(
        "--replace",
        action="store_true",
        help="take over deployments of another checkout or work pool; with LARDER_TEAM set, they "
        "have other names",
    )
    namespace = flags.parse_args(arguments)
    with need_server().guard():
        load_prefect()
        from flows.runs.flow_run import server_errors

        with server_errors():
            from flows.runs.deployments import deploy_all
            from tasks.artifacts import team

            deployed = deploy_all(**vars(namespace), team=team())
    lines = deployed.lines()
    if namespace.diff:
        lines = [*deployed.left_out] or ["the server is as the file says"]
    print_text("\n".join(lines))
    return 0
