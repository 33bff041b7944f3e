"""Delete copies of objects that are no longer in the source.

``python -m flows.prune s3://source/prefix s3://storage/prefix``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("prune"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.copy_command import PRUNE

prune = flow_of(PRUNE, "prune {storage} of what is not in {source}")
