"""A Prefect server, a worker and the deployments of this machine, until Ctrl-C.

``python -m flows.serve``
"""

from __future__ import annotations

from larder.cli.signals import arm

if __name__ == "__main__":
    arm()  # first of all: until then Python itself handles signals, with a traceback
    from flows.runs.serve_command import serve_command

    raise SystemExit(serve_command())
