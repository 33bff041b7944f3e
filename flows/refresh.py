"""Prepare the datasets whose sources have changed.

``python -m flows.refresh``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("refresh"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.prepare_command import REFRESH

refresh = flow_of(REFRESH, "refresh for {cluster}")
