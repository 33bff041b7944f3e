"""What all commands share: flags, exit statuses and how errors are reported.

Nothing slow is imported here, so that ``--help`` and invalid flags are answered at once.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from larder.cli.output import DONE, discard, print_json, print_text, tell
from larder.cli.signals import HINT, INTERRUPTED, conclude, interrupting, process
from larder.config.urls import shown
from larder.errors import ConfigError, Failure, FatalError, LarderError, ProblemsError
from larder.jobs.results import RefusedError, RunError
from larder.machine import keep_memory_small
from larder.packages import missing_package
from larder.units import nearest

if TYPE_CHECKING:
    from larder.cli.display import Display

DEBUG = "LARDER_DEBUG"
"""Environment variable: 1 shows the traceback of an error."""

SHOWN_LINES = 10
SHOWN_PROBLEMS = 100

_EPILOG = """\
exit status:
  0    done
  1    failed after retries: some objects could not be handled; they are listed
  2    the input is invalid or refused: configuration, flags, a cost limit
  3    a store refused access or cannot be reached: credentials, a missing bucket
  4    published data is damaged
  130  interrupted; run the same command again to continue

Local paths in configuration files are relative to the current directory.
LARDER_DEBUG=1 shows the traceback of an error.
"""


_VALUE = re.compile(r"(unrecognized arguments|ignored explicit argument)(.*)", re.DOTALL)
"""What argparse says about an argument, and the argument itself, which may be a credential."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are `ConfigError` with the code ``config.invalid_flag``."""

    _arguments: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As in argparse; keeps the arguments, to be able to name an unknown flag."""
        self._arguments = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._arguments, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        """For --help and --version: fails if it cannot be written, unless the reader has exited."""
        try:
            print_text(message.rstrip("\n"))
        except BrokenPipeError:
            discard(sys.stdout)

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments, reporting an unknown flag first, as it causes other mistakes."""
        for argument in self._arguments:
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in ("--", *self._option_string_actions):
                names = (each.removeprefix("--") for each in self._option_string_actions)
                near = nearest(flag.removeprefix("--"), names)
                hint = f"did you mean --{near[0]}?" if near else f"see {self.prog} --help"
                if flag == "--version":
                    hint = "larder --version shows the version of Larder"
                raise ConfigError("config.invalid_flag", f"there is no flag {flag}", hint=hint)
        found = _VALUE.search(message)
        if found and not shown(found[2]):
            message = message[: found.end(1)]
        raise ConfigError("config.invalid_flag", message, hint=f"see {self.prog} --help")


def parser(prog: str, description: str) -> Parser:
    """A parser with --help, which names the exit statuses, and no abbreviated flags."""
    return Parser(
        prog=prog,
        description=description,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def command(prog: str, description: str) -> Parser:
    """A parser with the shared flags, to which a command adds its own."""
    made = parser(prog, description)
    add = made.add_argument
    add("--dataset", metavar="NAME", required=True, help="CONFIG_DIR/datasets/NAME.yaml")
    add(
        "--cluster",
        metavar="NAME",
        default="local",
        help="CONFIG_DIR/clusters/NAME.yaml (default: local)",
    )
    add_shared(
        made,
        folders="datasets/, clusters/ and experiments/",
        fields="override a field of the dataset, or of the cluster with the prefix cluster.",
    )
    return made


def add_shared(made: Parser, *, folders: str, fields: str) -> None:
    """Add --config-dir with its ``folders``, --set with its ``fields``, --json and --quiet."""
    add = made.add_argument
    add(
        "--config-dir",
        metavar="DIR",
        type=Path,
        default=Path("configs"),
        help=f"directory with {folders} (default: configs)",
    )
    add(
        "--set",
        metavar="KEY.PATH=VALUE",
        action="append",
        default=[],
        help=f"{fields}; may be repeated",
    )
    add("--json", action="store_true", help="print a single JSON document on stdout")
    add("--quiet", action="store_true", help="show neither progress nor a summary")


def shared_parameters(namespace: argparse.Namespace) -> dict[str, Any]:
    return {
        "cluster": namespace.cluster,
        "settings": list(namespace.set),
        "config_dir": str(namespace.config_dir),
    }


def show(
    namespace: argparse.Namespace,
    work: Callable[[Display], dict[str, Any]],
    lines_of: Callable[[Mapping[str, Any]], list[str]],
) -> None:
    """Do the work with a display, and print its document as JSON or as lines for people."""
    from larder.cli.display import Display

    started = time.monotonic()
    with Display(quiet=namespace.quiet) as display:
        document = work(display)
        if not namespace.plan:
            document["seconds"] = round(time.monotonic() - started, 3)
            document["stages"] = display.stages()  # including those before the flow run
    hint = "make room, or redirect the output" if namespace.plan else DONE
    if namespace.json:
        print_json(document, hint=hint)
    elif not namespace.quiet or namespace.plan:
        print_text("\n".join(lines_of(document)), hint=hint)
    if namespace.json or (namespace.quiet and not namespace.plan):
        _tell_summary(document)


def _tell_summary(document: Mapping[str, Any]) -> None:
    """Tell the warnings and what was left out, which only the summary would show."""
    for warning in document.get("warnings", ()):
        tell(f"warning[{warning['code']}]: {warning['message']}")
    skipped = document.get("skipped")
    if skipped is None:
        return
    failures = [Failure(**failure) for failure in document["failures"]]
    if failures:
        tell_failures("skipped", failures, skipped)
    elif skipped:
        tell(f"skipped: {skipped:,}, when this version was built")


def run(main: Callable[[], int], *, json: bool | None = None) -> int:
    """Call ``main`` and turn whatever it raises into one line on stderr and an exit status.

    With --json, an error is also the single JSON document on stdout:
    ``{"error": {"code", "message", "where", "hint"}}``. If objects failed, it also has their
    number, ``failed``, and ``failures``, a list of ``{"key", "code", "message", "attempts"}``; if
    configuration files are invalid, it has ``problems``, a list of all mistakes in the form of
    ``error``. SIGTERM and SIGHUP interrupt like Ctrl-C.
    """
    as_json = "--json" in sys.argv[1:] if json is None else json
    keep_memory_small()
    try:
        with interrupting(json=as_json):
            status = _status(main, as_json)
    except KeyboardInterrupt:  # while something else was being reported
        status = INTERRUPTED
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
        refusal = _refusal(error)
        status = INTERRUPTED if refusal.code == "run.interrupted" else refusal.exit_status
        return _report(refusal, status, as_json)


def _refusal(error: BaseException) -> LarderError:
    if isinstance(error, KeyboardInterrupt) or process.interrupted:
        # Code that was being imported or closed may have turned the interrupt into another error.
        return FatalError("run.interrupted", "interrupted", hint=HINT)
    if isinstance(error, LarderError):
        return error
    refusal = missing_package(error) if isinstance(error, ImportError) else None
    if refusal:
        return refusal
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
    process.told = True
    if as_json and error.code != "run.output":
        document: dict[str, Any] = {"error": _fields(error)}
        if problems:
            document["problems"] = [_fields(problem) for problem in problems]
        if report:
            document["failed"] = report.failed
            document["failures"] = [asdict(failure) for failure in report.failures]
        # The error has been shown and decides the status, even if its document cannot be written.
        with suppress(FatalError):
            print_json(document)
    return status


def tell_failures(word: str, failures: Sequence[Failure], count: int) -> None:
    """List objects or samples that ``failed`` or were ``skipped`` on stderr: the first ones by
    name, one per line, and their total number ``count``.
    """
    for failure in failures[:SHOWN_LINES]:
        tell(f"{word}[{failure.code}]: {failure.line}")
    _tell_more(count - len(failures[:SHOWN_LINES]))


def _tell_more(count: int) -> None:
    if count > 0:
        tell(f"and {count:,} more (--json lists them)")


def _fields(error: LarderError) -> dict[str, str]:
    return {
        "code": error.code,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }
