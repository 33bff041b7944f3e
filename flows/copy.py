"""Copy missing objects from a source to a storage.

``python -m flows.copy s3://source/prefix s3://storage/prefix``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.flow_command import flow_command

    raise SystemExit(flow_command("copy"))  # which imports this module again, with Prefect

from flows.runs.flow_run import flow_of
from larder.cli.copy_command import COPY

copy = flow_of(COPY, "copy {source} to {storage}")
