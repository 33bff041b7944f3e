"""The command ``larder``: its subcommands, whose modules are imported when they are called.

``python -m flows.NAME`` is the same subcommand, but runs its operation as a flow.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pkgutil import resolve_name
from typing import NamedTuple

from larder.cli.signals import arm


class Entry(NamedTuple):
    """``command`` names an object with ``main(arguments, prog)``, which returns the exit status."""

    command: str
    summary: str


COMMANDS = {
    "advise": Entry(
        "larder.cli.catalog_command:ADVISE", "show how training could reach a dataset, and why"
    ),
    "cache": Entry("larder.cli.cache_command", "list and remove the caches of decorated functions"),
    "card": Entry("larder.cli.catalog_command:CARD", "draw the data card of a published version"),
    "clean": Entry("larder.cli.catalog_command:CLEAN", "delete versions, and what only they need"),
    "compact": Entry(
        "larder.cli.prepare_command:COMPACT", "put all samples of a dataset into one segment"
    ),
    "copy": Entry(
        "larder.cli.copy_command:COPY", "copy what is missing from a source to a storage"
    ),
    "diff": Entry("larder.cli.catalog_command:DIFF", "compare two versions of a dataset"),
    "du": Entry(
        "larder.cli.catalog_command:DU", "count the bytes of datasets, versions and segments"
    ),
    "emit": Entry(
        "larder.cli.catalog_command:EMIT", "write the experiment config of a published version"
    ),
    "init": Entry("larder.cli.init_command", "write a configs folder with examples"),
    "lease": Entry(
        "larder.cli.catalog_command:LEASE", "keep a version from being cleaned for some days"
    ),
    "ls": Entry(
        "larder.cli.catalog_command:LS", "list the datasets of a storage, or versions of one"
    ),
    "prepare": Entry(
        "larder.cli.prepare_command:PREPARE", "prepare a dataset: from a source to a config"
    ),
    "prune": Entry(
        "larder.cli.copy_command:PRUNE", "delete copies of what is no longer in the source"
    ),
    "refresh": Entry(
        "larder.cli.prepare_command:REFRESH", "prepare the datasets whose sources changed"
    ),
    "show": Entry("larder.cli.catalog_command:SHOW", "show what is in a version, and its lineage"),
    "tag": Entry(
        "larder.cli.catalog_command:TAG", "make a tag name a version: also one before, to go back"
    ),
    "trace": Entry(
        "larder.cli.catalog_command:TRACE", "find a sample, and what it was packed from"
    ),
    "verify": Entry(
        "larder.cli.verify_command:VERIFY", "read a version again, and repair what is damaged"
    ),
    "warm": Entry(
        "larder.cli.warm_command", "download a version to a directory before training starts"
    ),
}

_DESCRIPTION = """\
Takes a training dataset from where it lives to where training runs, in the form that training reads
fastest, and writes the experiment config that points at it.

commands:
{commands}

larder COMMAND --help describes each command.\
"""


def main() -> int:
    arm()
    from larder.cli.exit import run

    return run(lambda: dispatch(sys.argv[1:]))


def dispatch(arguments: Sequence[str]) -> int:
    """Call the subcommand that the first argument names, with the remaining arguments."""
    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        command = resolve_name(COMMANDS[name].command)
        status: int = command.main(arguments[1:], f"larder {name}")
        return status
    if name.startswith("-"):
        _answer(arguments)
    raise _refusal(name)


def _answer(arguments: Sequence[str]) -> None:
    """Answer --help and --version and exit, and refuse other flags."""
    import larder
    from larder.cli.arguments import parser

    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {entry.summary}" for name, entry in COMMANDS.items()]
    about = parser("larder", _DESCRIPTION.format(commands="\n".join(lines)))
    about.usage = "larder COMMAND ..."
    version = f"larder {larder.__version__}"
    about.add_argument("--version", action="version", version=version, help="show it and exit")
    about.parse_args(arguments)


def _refusal(name: str) -> Exception:
    from larder.errors import ConfigError
    from larder.units import suggest

    if not name or name.startswith("-"):
        message, hint = "the command is missing", f"the commands are {', '.join(COMMANDS)}"
    else:
        message, hint = f"there is no command {name}", suggest(name, COMMANDS, "commands")
    return ConfigError("config.invalid_flag", message, hint=f"{hint}; see larder --help")


if __name__ == "__main__":
    sys.exit(main())
