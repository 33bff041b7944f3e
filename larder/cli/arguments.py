"""The flags of commands, and the refusal of wrong flags."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
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

    def error(self, message: str) -> NoReturn:
        """Refuse the arguments, reporting an unknown flag first, as it causes other mistakes."""
        for argument in self._arguments:
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in ("--", *self._option_string_actions):
                names = (each.removeprefix("--") for each in self._option_string_actions)
                near = nearest(flag.removeprefix("--"), names)
                hint = f"did you mean --{near}?" if near else f"see {self.prog} --help"
                if flag == "--version":
                    hint = "larder --version shows the version of Larder"
                raise ConfigError("config.invalid_flag", f"there is no flag {flag}", hint=hint)
        match = _VALUE.search(message)
        if match and not shown(match[2]):
            message = message[: match.end(1)]
        raise ConfigError("config.invalid_flag", message, hint=f"see {self.prog} --help")


def parser(prog: str, description: str) -> Parser:
    """Make a parser with --help, which names the exit statuses, and no abbreviated flags."""
    return Parser(
        prog=prog,
        description=description,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def dataset_parser(prog: str, description: str) -> Parser:
    """Make a parser with the flags of a command for a dataset."""
    result = parser(prog, description)
    result.add_argument(
        "--dataset", metavar="NAME", required=True, help="CONFIG_DIR/datasets/NAME.yaml"
    )
    add_cluster(result)
    return result


def version_parser(prog: str, description: str) -> Parser:
    """Make a parser with DATASET@VERSION and the flags of a command for a dataset."""
    result = parser(prog, description)
    result.add_argument(
        "version",
        metavar="DATASET[@ID|TAG]",
        help="CONFIG_DIR/datasets/DATASET.yaml, and the version (default: latest)",
    )
    add_cluster(result)
    return result


def add_cluster(parser: Parser) -> None:
    """Add --cluster, and the flags that all commands for datasets share."""
    parser.add_argument(
        "--cluster",
        metavar="NAME",
        default="local",
        help="CONFIG_DIR/clusters/NAME.yaml (default: local)",
    )
    fields = "override a field of the dataset, or of the cluster with the prefix cluster."
    _add_shared(parser, folders="datasets/, clusters/ and experiments/", fields=fields)


def stored_parser(prog: str, description: str) -> Parser:
    """Make a parser with the argument DATASET of a command that reads no dataset file."""
    result = parser(prog, description)
    result.add_argument("dataset", metavar="DATASET", help="name of the dataset")
    add_storage(result)
    return result


def add_storage(parser: Parser) -> None:
    """Add --storage and --cluster, which say where datasets are, and the shared flags."""
    add = parser.add_argument
    add("--storage", metavar="URL", help="URL or path of the storage (default: the cluster's)")
    add("--cluster", metavar="NAME", help="CONFIG_DIR/clusters/NAME.yaml (default: local)")
    _add_shared(parser, folders="clusters/", fields="override a field: cluster.KEY.PATH=VALUE")


def places_parser(prog: str, description: str) -> Parser:
    """Make a parser with the arguments SOURCE and STORAGE and the flags of these commands."""
    result = parser(prog, description)
    add = result.add_argument
    add("source", metavar="SOURCE", help="URL or path of what is copied")
    add("storage", metavar="STORAGE", help="URL or path of where it is copied to")
    add_plan(result)
    add(
        "--include",
        metavar="GLOB",
        action="append",
        default=[],
        help="keys to include: * within a segment, ** across; may be repeated (default: **)",
    )
    add(
        "--exclude",
        metavar="GLOB",
        action="append",
        default=[],
        help="keys to exclude from those; may be repeated",
    )
    add(
        "--cluster",
        metavar="NAME",
        help="CONFIG_DIR/clusters/NAME.yaml: its limits, and how its storage is reached",
    )
    fields = "set a field of source, storage, copy or runner, such as source.region=us-east-1"
    _add_shared(result, folders="clusters/", fields=fields)
    return result


def add_plan(parser: Parser) -> None:
    parser.add_argument("--plan", action="store_true", help="print what would be done, and exit")


def add_output(parser: Parser) -> None:
    parser.add_argument(
        "--output", metavar="DIR", help="where to write configs (default: out/CLUSTER/DATASET)"
    )


def _add_shared(parser: Parser, *, folders: str, fields: str) -> None:
    """Add --config-dir with its ``folders``, --set with its ``fields``, --json and --quiet."""
    add = parser.add_argument
    add(
        "--config-dir",
        metavar="DIR",
        default="configs",
        help=f"directory with {folders} (default: configs)",
    )
    add(
        "--set",
        metavar="KEY.PATH=VALUE",
        dest="settings",
        action="append",
        default=[],
        help=f"{fields}; may be repeated",
    )
    add("--json", action="store_true", help="print a single JSON document on stdout")
    add("--quiet", action="store_true", help="show neither progress nor a summary")
