"""The command ``larder``: its subcommands, each a module that is imported when it is called.

A subcommand is a module with ``main(arguments, prog)``, which returns the exit status, and a line
in `COMMANDS`. One that also runs as a flow is called as ``python -m flows.NAME`` by a module that
hands its own way of running to the same ``main``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple

from larder.cli.signals import arm

__all__ = ["COMMANDS", "Command", "dispatch", "main"]


class Command(NamedTuple):
    """A subcommand.

    Attributes:
        module: Has its ``main``.
        summary: A line for --help.
    """

    module: str
    summary: str


COMMANDS = {
    "init": Command("larder.cli.init", "write a configs folder with examples"),
    "prepare": Command("larder.cli.prepare", "prepare a dataset: from its source to a config"),
}

_DESCRIPTION = """\
Gets a training dataset from where it lives to where training runs, in the form that training reads
fastest, and hands over the experiment config that points at it.

commands:
{commands}

larder COMMAND --help tells about each.\
"""


def main() -> int:
    """The program; returns its exit status."""
    arm()
    from larder.cli.command import run

    return run(lambda: dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Call the subcommand that the first argument names, with the others.

    Raises:
        ConfigError: ``config.invalid_flag``: there is no such command, or none is named.
    """
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        status: int = import_module(COMMANDS[name].module).main(arguments[1:], f"larder {name}")
        return status
    if name.startswith("-"):
        _answer(arguments)
    raise _refusal(name)


def _answer(arguments: Sequence[str]) -> None:
    """Answer --help and --version by ending the program, and refuse other flags."""
    from larder.cli.command import parser

    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.summary}" for name, command in COMMANDS.items()]
    about = parser("larder", _DESCRIPTION.format(commands="\n".join(lines)))
    about.usage = "larder COMMAND ..."
    about.parse_args(arguments)


def _refusal(name: str) -> Exception:
    from larder.config.suggest import suggest
    from larder.errors import ConfigError

    if not name or name.startswith("-"):
        message, hint = "no command is named", f"the commands are {', '.join(COMMANDS)}"
    else:
        message, hint = f"there is no command {name}", suggest(name, COMMANDS, "commands")
    return ConfigError("config.invalid_flag", message, hint=f"{hint}; see larder --help")


if __name__ == "__main__":
    sys.exit(main())
