"""What all commands of Larder share: flags, exit statuses, and how an error reaches the user.

Nothing heavy is imported here, so that ``--help`` and wrong flags are answered at once.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn

from larder.config.secrets import shown
from larder.config.suggest import nearest
from larder.errors import ConfigError, Failure, FatalError, LarderError, ProblemsError
from larder.pipeline.results import BadKeysError, RunError

__all__ = ["DEBUG", "Options", "Parser", "command", "options", "print_json", "run"]

DEBUG = "LARDER_DEBUG"
"""Environment variable: 1 shows the traceback of an error."""

INTERRUPTED = 130
SHOWN_LINES = 10
SHOWN_PROBLEMS = 100

_EPILOG = """\
exit status:
  0    done
  1    failed after retries: some objects could not be handled; they are listed
  2    the input is wrong or refused: configuration, flags, a cost limit
  3    a store refused or cannot be reached: credentials, a missing bucket
  4    damage found: published bytes are not those that were published
  130  interrupted; the same command carries on where it stopped

Local paths in configuration files are relative to the current directory.
LARDER_DEBUG=1 shows the traceback of an error.
"""


_VALUE = re.compile(r"(unrecognized arguments|ignored explicit argument)(.*)", re.DOTALL)
"""What argparse says of an argument, and the argument itself, which may be a credential."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are `ConfigError` with the code ``config.invalid_flag``."""

    _arguments: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As argparse has it; the arguments are kept, to name an unknown flag."""
        self._arguments = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._arguments, namespace)

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments: an unknown flag first, because others follow from it."""
        for argument in self._arguments:
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in ("--", *self._option_string_actions):
                near = nearest(flag, self._option_string_actions)
                hint = f"did you mean {near[0]}?" if near else f"see {self.prog} --help"
                raise ConfigError("config.invalid_flag", f"there is no flag {flag}", hint=hint)
        found = _VALUE.search(message)
        if found and not shown(found[2]):
            message = message[: found.end(1)]
        raise ConfigError("config.invalid_flag", message, hint=f"see {self.prog} --help")


@dataclass(frozen=True, slots=True)
class Options:
    """The values of the shared flags.

    Attributes:
        dataset: Name of the dataset; empty where a command can do without and none was given.
        cluster: Name of the cluster.
        config_dir: The directory of all configuration, as it was given.
        settings: The ``--set`` arguments in their order.
        json: Print exactly one JSON document on stdout.
        quiet: Show no progress.
    """

    dataset: str
    cluster: str
    config_dir: Path
    settings: tuple[str, ...]
    json: bool
    quiet: bool


def command(prog: str, description: str, *, needs_dataset: bool = True) -> Parser:
    """A parser with the shared flags, to which a command adds its own.

    Args:
        prog: How the command is called, such as ``python -m flows.prepare``.
        description: One or two sentences for --help.
        needs_dataset: Whether --dataset has to be given.
    """
    parser = Parser(
        prog=prog,
        description=description,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--dataset", metavar="NAME", required=needs_dataset, help="CONFIG_DIR/datasets/NAME.yaml")
    add(
        "--cluster",
        metavar="NAME",
        default="local",
        help="CONFIG_DIR/clusters/NAME.yaml (default: local)",
    )
    add(
        "--config-dir",
        metavar="DIR",
        type=Path,
        default=Path("configs"),
        help="where datasets/, clusters/ and experiments/ are (default: configs)",
    )
    add(
        "--set",
        metavar="KEY.PATH=VALUE",
        action="append",
        default=[],
        help="override a field of the dataset, or of the cluster with cluster. in front; "
        "may be repeated",
    )
    add("--json", action="store_true", help="print exactly one JSON document on stdout")
    add("--quiet", action="store_true", help="show no progress")
    return parser


def options(namespace: argparse.Namespace) -> Options:
    """The shared flags of parsed arguments."""
    return Options(
        dataset=namespace.dataset or "",
        cluster=namespace.cluster,
        config_dir=namespace.config_dir,
        settings=tuple(namespace.set),
        json=namespace.json,
        quiet=namespace.quiet,
    )


def print_json(document: Mapping[str, Any]) -> None:
    """Print ``document`` on stdout: the one JSON document of a command."""
    print(json.dumps(document, ensure_ascii=False, indent=2, allow_nan=False))


def run(main: Callable[[], int], *, json: bool | None = None) -> int:
    """Call ``main`` and turn whatever it raises into one line on stderr and an exit status.

    With --json an error is also the one JSON document on stdout:
    ``{"error": {"code", "message", "where", "hint"}}``, and of a run in which objects failed also
    ``failed``, their number, and ``failures``, a list of ``{"key", "code", "message"}``; of wrong
    configuration files ``problems``, all that is wrong, each like ``error``. SIGTERM
    interrupts as Ctrl-C does.

    Args:
        main: The command; it parses its arguments, and returns the exit status.
        json: Whether --json was given; looked up in ``sys.argv`` if None, because the arguments
            themselves may be what is wrong.

    Returns:
        The exit status; see --help.
    """
    as_json = "--json" in sys.argv[1:] if json is None else json
    try:
        with _terminable():
            status = _status(main, as_json)
        sys.stdout.flush()
    except BrokenPipeError:
        status = 1
        _discard(sys.stdout)
    try:
        sys.stderr.flush()
    except BrokenPipeError:
        _discard(sys.stderr)
    return status


def _status(main: Callable[[], int], as_json: bool) -> int:
    try:
        return main()
    except BrokenPipeError:
        raise
    except LarderError as error:
        return _report(error, error.exit_status, as_json)
    except KeyboardInterrupt:
        hint = "run the same command again to carry on"
        stopped = FatalError("run.interrupted", "interrupted", hint=hint)
        return _report(stopped, INTERRUPTED, as_json)
    except SystemExit as stop:  # of --help
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except Exception as error:  # noqa: BLE001 - the last resort of every command
        message = f"unexpected {type(error).__name__}: {error}"
        hint = f"this is a defect of Larder: report it with what {DEBUG}=1 shows"
        defect = FatalError("run.internal", message, hint=hint)
        return _report(defect, defect.exit_status, as_json)


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM interrupt, so that temporary files go and the exit status says what happened."""

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread, where alone signals arrive
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(error: LarderError, status: int, as_json: bool) -> int:
    if os.environ.get(DEBUG, "") not in ("", "0"):
        traceback.print_exc()
    report = error.report if isinstance(error, BadKeysError | RunError) else None
    if report:
        _list_failures(report.failures, report.failed)
    problems = error.problems if isinstance(error, ProblemsError) else ()
    for problem in problems[:SHOWN_PROBLEMS] or (error,):
        print(f"error[{problem.code}]: {problem}", file=sys.stderr)
    _say_more(len(problems) - SHOWN_PROBLEMS)
    if as_json:
        document: dict[str, Any] = {"error": _fields(error)}
        if problems:
            document["problems"] = [_fields(problem) for problem in problems]
        if report:
            document["failed"] = report.failed
            document["failures"] = [asdict(failure) for failure in report.failures]
        print_json(document)
    return status


def _list_failures(failures: Sequence[Failure], count: int) -> None:
    for failure in failures[:SHOWN_LINES]:
        print(f"failed[{failure.code}]: {failure.line}", file=sys.stderr)
    _say_more(count - len(failures[:SHOWN_LINES]))


def _say_more(count: int) -> None:
    if count > 0:
        print(f"and {count:,} more (--json lists them)", file=sys.stderr)


def _fields(error: LarderError) -> dict[str, str]:
    return {
        "code": error.code,
        "message": error.message,
        "where": error.where,
        "hint": error.hint,
    }


def _discard(stream: Any) -> None:
    """Point a stream whose reader has gone at nothing, so that closing it is silent."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
