"""What a command writes: its result to stdout, all of it or an error, and lines to stderr."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

from larder.cli.signals import process
from larder.errors import FatalError, printable

__all__ = ["DONE", "discard", "print_json", "print_text", "tell"]

DONE = "what was done stands; the same command tells it again"
"""What to say where a command's result cannot be written."""


def print_json(document: Mapping[str, Any], *, hint: str = DONE) -> None:
    """Print ``document`` on stdout: the one JSON document of a command.

    Args:
        document: It.
        hint: What to do if that fails.

    Raises:
        FatalError: See `print_text`.
    """
    text = json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False)
    if not _encodable(text) or _printable(text) != text:
        text = json.dumps(document, indent=2, allow_nan=False)
    print_text(text, hint=hint)


def print_text(text: str, *, hint: str = "") -> None:
    """Print ``text`` and a line's end on stdout, at once.

    Args:
        text: One or more lines. What stdout's encoding lacks, and control characters, are
            written as a backslash and their number.
        hint: What to do if that fails.

    Raises:
        FatalError: ``run.output``: it is closed, or full.
        BrokenPipeError: Its reader has gone.
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
        message = f"stdout cannot be written: {reason}"
        raise FatalError("run.output", message, hint=hint) from error


def tell(line: str) -> None:
    """Write a line to stderr. Whatever keeps it from being read is no reason to stop."""
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(f"{_printable(line)}\n")
        sys.stderr.flush()
    except (OSError, ValueError):
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Point a stream that cannot be written at nothing, so that closing it is silent."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, stream.fileno())
        os.close(nothing)
    except (OSError, ValueError):  # it has no descriptor, or none any more
        return


def _printable(text: str) -> str:
    return "\n".join(map(printable, text.split("\n")))


def _encodable(text: str) -> bool:
    try:
        text.encode(_encoding())
    except UnicodeEncodeError:
        return False
    return True


def _encoding() -> str:
    return getattr(sys.stdout, "encoding", None) or "utf-8"
