"""Read a published version again, and repair damage.

``python -m flows.verify --dataset digits``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("verify"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.verify_command import VERIFY

verify = flow_of(VERIFY, "verify {dataset} for {cluster}")
