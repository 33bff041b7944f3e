"""Make a tag name a version, also an earlier version to go back.

``python -m flows.tag digits latest ID --pin``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("tag"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.catalog_command import TAG

tag = flow_of(TAG, "tag {dataset}")
