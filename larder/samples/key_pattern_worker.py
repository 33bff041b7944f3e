"""A process that searches sample keys for a regular expression: lines of JSON come and go.

A request has the ``pattern``, the ``keys``, and the ``seconds`` that each may take; a result has
the first ``groups``, or the place of the key that took too long as ``slow``. The process ends with
its stdin, so it does not outlive the one that started it.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from typing import IO, Any

__all__ = ["main"]


class _TooSlowError(Exception):
    """A search was interrupted."""


def main(requests: IO[bytes], results: IO[bytes]) -> None:
    """Serve requests until there are no more; in the main thread, which hears signals.

    Args:
        requests: Where they come from.
        results: Where results go.
    """
    signal.signal(signal.SIGALRM, _interrupt)
    while line := requests.readline():
        results.write(json.dumps(_answer(**json.loads(line))).encode() + b"\n")
        results.flush()


def _interrupt(number: int, frame: object) -> None:
    raise _TooSlowError


def _answer(pattern: str, keys: list[str], seconds: float) -> dict[str, Any]:
    search = re.compile(pattern).search
    groups: list[str | None] = []
    try:
        for key in keys:
            signal.setitimer(signal.ITIMER_REAL, seconds)
            match = search(key)
            groups.append(match[1] if match else None)
        signal.setitimer(signal.ITIMER_REAL, 0)
    except _TooSlowError:
        return {"slow": len(groups)}
    return {"groups": groups}


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
