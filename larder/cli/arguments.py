"""The flags of commands, and the refusal of wrong flags."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from larder.cli.output import discard, print_text
from larder.config.urls import shown
from larder.errors import ConfigError
from larder.units import nearest

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
"""argparse's message about an argument, and the argument itself, which may be a credential."""


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are `ConfigError` with the code ``config.invalid_flag``."""

    _arguments: Sequence[str] = ()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as argparse does; keep the arguments, to be able to name an unknown flag."""
        self._arguments = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(self._arguments, namespace)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print --help or --version; fails if stdout cannot be written, unless its reader left."""
        try:
            print_text(message.rstrip("\n"))
        except BrokenPipeError:
            discard(sys.stdout)

    def parameters(self) -> dict[str, argparse.Action]:
        """Return the argument of each parameter, except those of --help and the output."""
        result: dict[str, argparse.Action] = {}
        for action in self._actions:
            if action.dest not in ("help", "json", "quiet"):
                result.setdefault(action.dest, action)
        return result

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments, reporting an unknown flag first, as it causes other mistakes."""
        for argument in self._arguments:
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in ("--", *self._option_string_actions):
                names = (each.removeprefix("--") for each in self._option_string_actions)
                near = nearest(flag.removeprefix("--"), names)
                hint = f"did you mean --{near}?" if near else f"see {self.prog} --help"
                raise ConfigError("config.invalid_flag", f"there is no flag {flag}", hint=hint)
        match = _VALUE.search(message)
        if match and not shown(match[2]):
            message = message[: match.end(1)]
        raise ConfigError("config.invalid_flag", message, hint=f"see {self.prog} --help")


Add = Callable[[Parser], None]
"""A function that adds arguments of a command to its parser."""


def parser(prog: str, description: str, *adds: Add) -> Parser:
    """Make a parser with --help, which names the exit statuses, and no abbreviated flags."""
    result = Parser(
        prog=prog,
        description=description,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for add in adds:
        add(result)
    return result


def add_dataset(parser: Parser) -> None:
    """Add --dataset, and the flags of a command for a dataset."""
    described = "name of a file in configs/datasets"
    parser.add_argument("--dataset", metavar="NAME", required=True, help=described)
    add_cluster(parser)


def add_version(parser: Parser) -> None:
    """Add DATASET@VERSION, and the flags of a command for a dataset."""
    described = "name of a file in configs/datasets, and the version (default: latest)"
    parser.add_argument("version", metavar="DATASET[@ID|TAG]", help=described)
    add_cluster(parser)


def add_cluster(parser: Parser) -> None:
    """Add --cluster, and the flags that all commands for datasets share."""
    described = "name of a file in configs/clusters (default: local)"
    parser.add_argument("--cluster", metavar="NAME", default="local", help=described)
    settings = (
        "override fields: KEY.PATH=VALUE of the dataset, cluster.KEY.PATH=VALUE of the cluster"
    )
    _add_shared(parser, folders="datasets/, clusters/ and experiments/", settings=settings)


def add_name(parser: Parser) -> None:
    """Add DATASET, for a command that reads no dataset file."""
    parser.add_argument("dataset", metavar="DATASET", help="name of the dataset")


def add_storage(parser: Parser) -> None:
    """Add --storage and --cluster, which say where datasets are, and the shared flags."""
    add = parser.add_argument
    add("--storage", metavar="URL", help="URL or path of the storage (default: the cluster's)")
    add("--cluster", metavar="NAME", help="name of a file in configs/clusters (default: local)")
    settings = "override fields of the cluster: cluster.KEY.PATH=VALUE"
    _add_shared(parser, folders="clusters/", settings=settings)


def add_places(parser: Parser) -> None:
    """Add SOURCE and STORAGE, and the flags of a command for both."""
    add = parser.add_argument
    add("source", metavar="SOURCE", help="URL or path of the source")
    add("storage", metavar="STORAGE", help="URL or path of the storage")
    add_plan(parser)
    include = "keys to include: * within a segment, ** across; may be repeated (default: **)"
    add("--include", metavar="GLOB", action="append", default=[], help=include)
    exclude = "keys to exclude from those; may be repeated"
    add("--exclude", metavar="GLOB", action="append", default=[], help=exclude)
    described = "name of a file in configs/clusters: its limits, and how its storage is reached"
    add("--cluster", metavar="NAME", help=described)
    settings = "set fields of source, storage, copy or runner, such as source.region=us-east-1"
    _add_shared(parser, folders="clusters/", settings=settings)


def add_plan(parser: Parser) -> None:
    parser.add_argument(
        "--plan", action="store_true", help="show what would be done, and change nothing"
    )


def add_output(parser: Parser) -> None:
    described = "where to write configs (default: out/CLUSTER/DATASET)"
    parser.add_argument("--output", metavar="DIR", help=described)


def add_json(parser: Parser) -> None:
    described = "print a single JSON document on stdout"
    parser.add_argument("--json", action="store_true", help=described)


def _add_shared(parser: Parser, *, folders: str, settings: str) -> None:
    """Add --config-dir with its ``folders``, --set with its ``settings``, --json and --quiet."""
    add = parser.add_argument
    described = f"directory with {folders} (default: configs)"
    add("--config-dir", metavar="DIR", default="configs", help=described)
    value, repeated = "KEY.PATH=VALUE", f"{settings}; may be repeated"
    add("--set", metavar=value, dest="settings", action="append", default=[], help=repeated)
    add_json(parser)
    add("--quiet", action="store_true", help="show neither progress nor a summary")
