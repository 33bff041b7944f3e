"""Put all samples of a dataset into one segment.

``python -m flows.compact --dataset digits``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("compact"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.prepare_command import COMPACT

compact = flow_of(COMPACT, "compact {dataset} for {cluster}")
