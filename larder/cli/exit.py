"""The end of a command: its exit status, and errors as one line and one document."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from larder.cli.output import discard, print_json, tell
from larder.cli.signals import HINT, INTERRUPTED_STATUS, conclude, interrupting, process
from larder.disk import limit_error
from larder.errors import Failure, FatalError, LarderError, ProblemsError, shortened
from larder.jobs.results import RefusedError, RunError
from larder.machine import keep_memory_small, raise_open_files
from larder.packages import missing_package

DEBUG = "LARDER_DEBUG"
"""Environment variable: 1 shows the traceback of an error."""

SHOWN_LINES = 10
SHOWN_PROBLEMS = 100


def run(main: Callable[[], int], *, json: bool | None = None) -> int:
    """Call ``main`` and turn an exception into one line on stderr and an exit status.

    With --json, an error is also the single JSON document on stdout:
    ``{"error": {"code", "message", "where", "hint"}}``. If objects failed, it also has their
    number, ``failed``, and ``failures``, a list of ``{"key", "code", "message", "attempts"}``; if
    configuration files are invalid, it has ``problems``, a list of all mistakes in the form of
    ``error``. SIGTERM and SIGHUP interrupt like Ctrl-C.
    """
    as_json = "--json" in sys.argv[1:] if json is None else json
    keep_memory_small()
    raise_open_files()
    try:
        with interrupting(json=as_json):
            status = _status(main, as_json)
    except KeyboardInterrupt:  # during the report of another error
        status = INTERRUPTED_STATUS
    except BrokenPipeError:
        status = 1
        discard(sys.stdout)
    conclude(status)
    return status


def _status(main: Callable[[], int], as_json: bool) -> int:
    try:
        return main()
    except BrokenPipeError:
        raise
    except SystemExit as stop:  # from --help
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:  # noqa: BLE001 - the last resort of every command
        shown = refusal(error)
        status = INTERRUPTED_STATUS if shown.code == "run.interrupted" else shown.exit_status
        return _report(shown, status, as_json)


def refusal(error: BaseException) -> LarderError:
    """Turn any exception into the `LarderError` to report."""
    if isinstance(error, KeyboardInterrupt) or process.interrupted:
        # Code that was being imported or closed may have turned the interrupt into another error.
        return FatalError("run.interrupted", "interrupted", hint=HINT)
    if isinstance(error, LarderError):
        return error
    missing = missing_package(error) if isinstance(error, ImportError) else None
    if shown := missing or limit_error(error, ""):
        return shown
    message = f"unexpected {type(error).__name__}: {error}"
    hint = f"this is a bug in Larder: report it with the output of {DEBUG}=1"
    return FatalError("run.internal", message, hint=hint)


def _report(error: LarderError, status: int, as_json: bool) -> int:
    if os.environ.get(DEBUG, "") not in ("", "0"):
        tell(traceback.format_exc().rstrip())
    report = error.report if isinstance(error, RefusedError | RunError) else None
    if report:
        tell_failures("failed", report.failures, report.failed)
    problems = error.problems if isinstance(error, ProblemsError) else ()
    for problem in problems[:SHOWN_PROBLEMS] or (error,):
        tell(f"error[{problem.code}]: {problem}")
    _tell_more(len(problems) - SHOWN_PROBLEMS)
    process.reported = True
    if as_json and error.code != "run.output":
        document: dict[str, Any] = {"error": error_fields(error)}
        if problems:
            document["problems"] = [error_fields(problem) for problem in problems]
        if report:
            document["failed"] = report.failed
            document["failures"] = [failure._asdict() for failure in report.failures]
        if isinstance(error, RunError) and error.document:
            document.update(error.document)
        # The error has been shown and decides the status, even if its document cannot be written.
        with suppress(FatalError):
            print_json(document)
    return status


def tell_failures(word: str, failures: Sequence[Failure], count: int) -> None:
    """List objects or samples that ``failed`` or were ``skipped`` on stderr.

    Name the first ones, one per line, and tell how many of ``count`` remain.
    """
    for failure in failures[:SHOWN_LINES]:
        tell(f"{word}[{failure.code}]: {failure.line}")
    _tell_more(count - len(failures[:SHOWN_LINES]))


def _tell_more(count: int) -> None:
    if count > 0:
        tell(f"and {count:,} more (--json lists them)")


def error_fields(error: LarderError) -> dict[str, str]:
    fields = {"message": error.message, "where": error.where, "hint": error.hint}
    return {"code": error.code} | {name: shortened(text) for name, text in fields.items()}
