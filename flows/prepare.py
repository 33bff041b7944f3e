"""Prepare a dataset: from its source to an experiment config.

``python -m flows.prepare --dataset digits``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("prepare"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.prepare_command import PREPARE

prepare = flow_of(PREPARE, "prepare {dataset} for {cluster}")
