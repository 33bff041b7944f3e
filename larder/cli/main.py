"""The command ``larder``: its subcommands, whose modules are imported when they are called.

``python -m flows.NAME`` is the same subcommand, but runs its operation as a flow.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any, NamedTuple

from larder.cli.signals import arm


class Entry(NamedTuple):
    """A command: the module in `larder.cli` that has it, and its line in the help."""

    module: str
    summary: str


COMMANDS = {
    "advise": Entry("catalog_command", "show how training could reach a dataset, and why"),
    "cache": Entry("cache_command", "list and remove the caches of decorated functions"),
    "card": Entry("catalog_command", "draw the data card of a published version"),
    "clean": Entry("catalog_command", "delete versions, and what only they need"),
    "compact": Entry("prepare_command", "put all samples of a dataset into one segment"),
    "copy": Entry("copy_command", "copy what is missing from a source to a storage"),
    "diff": Entry("catalog_command", "compare two versions of a dataset"),
    "du": Entry("catalog_command", "count the bytes of datasets, versions and segments"),
    "emit": Entry("catalog_command", "write the experiment config of a published version"),
    "init": Entry("init_command", "write a configs folder with examples"),
    "lease": Entry("catalog_command", "keep a version from being cleaned for some days"),
    "ls": Entry("catalog_command", "list the datasets of a storage, or versions of one"),
    "prepare": Entry("prepare_command", "prepare a dataset: from a source to a config"),
    "prune": Entry("copy_command", "delete copies of what is no longer in the source"),
    "refresh": Entry("prepare_command", "prepare the datasets whose sources changed"),
    "show": Entry("catalog_command", "show what is in a version, and its lineage"),
    "tag": Entry("catalog_command", "make a tag name a version: also one before, to go back"),
    "trace": Entry("catalog_command", "find a sample, and what it was packed from"),
    "verify": Entry("verify_command", "read a version again, and repair what is damaged"),
    "warm": Entry("warm_command", "download a version to a directory before training starts"),
}


def command_of(name: str) -> Any:
    """Import a command: the object in its module with its name, or else the module itself."""
    module = import_module(f"larder.cli.{COMMANDS[name].module}")
    return getattr(module, name.upper(), module)


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
        status: int = command_of(name).main(arguments[1:], f"larder {name}")
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
