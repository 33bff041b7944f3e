"""Output of a command: its result on stdout, completely or as an error, and lines on stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from larder.cli.signals import process
from larder.errors import FatalError, printable

DONE = "the work is done; run the same command again to see the result"
"""The hint if a command's result cannot be written."""


def print_json(document: Mapping[str, Any], *, hint: str = DONE) -> None:
    """Print the single JSON document of a command on stdout; ``hint`` is for when that fails."""
    print_text(json.dumps(document, indent=2, allow_nan=False), hint=hint)


def print_text(text: str, *, hint: str = "") -> None:
    """Print ``text`` and a newline on stdout, and flush it; ``run.output`` if stdout is closed or
    full, BrokenPipeError if its reader has exited.

    Control characters, and characters that stdout's encoding does not have, are written as
    backslash escapes.
    """
    process.printed = True
    text = _printable(text).encode(_encoding(), "backslashreplace").decode(_encoding())
    try:
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:  # ValueError: closed by Python
        discard(sys.stdout)
        reason = error.strerror if isinstance(error, OSError) else "it is closed"
        message = f"cannot write to stdout: {reason}"
        raise FatalError("run.output", message, hint=hint) from error


def tell(line: str) -> None:
    """Write a line to stderr; errors while writing are ignored."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{_printable(line)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Point a stream that cannot be written to at /dev/null, so that closing it is silent."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
    except (OSError, ValueError):  # it has no descriptor (any more)
        return


def _printable(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"
