"""Delete versions that nothing needs, and the data that only such versions need.

``python -m flows.clean digits --keep 3``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("clean"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.catalog_command import CLEAN

clean = flow_of(CLEAN, "clean {dataset}")
