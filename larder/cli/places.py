"""What the commands share that name a source and a storage themselves."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from larder.cli.command import Parser, add_shared, parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.prepare import tell_warnings

if TYPE_CHECKING:
    from larder.cli.display import Display

__all__ = ["flow_parameters", "places_parser", "show"]


def places_parser(prog: str, description: str) -> Parser:
    """A parser with the arguments SOURCE and STORAGE and the flags of these commands.

    Args:
        prog: How the command is called, such as ``larder copy``.
        description: One or two sentences for --help.
    """
    made = parser(prog, description)
    add = made.add_argument
    add("source", metavar="SOURCE", help="URL or path of what is copied")
    add("storage", metavar="STORAGE", help="URL or path of where it is copied to")
    add("--plan", action="store_true", help="print what would be done, and exit")
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
    add_shared(made, folders="clusters/", fields=fields)
    return made


def flow_parameters(namespace: argparse.Namespace) -> dict[str, Any]:
    """The parameters that the flow and `larder.pipeline.copying_settings` have in common."""
    return {
        "source": namespace.source,
        "storage": namespace.storage,
        "cluster": namespace.cluster,
        "settings": list(namespace.set),
        "include": list(namespace.include),
        "exclude": list(namespace.exclude),
        "config_dir": str(namespace.config_dir),
    }


def show(
    namespace: argparse.Namespace,
    work: Callable[[Display], dict[str, Any]],
    lines_of: Callable[[Mapping[str, Any]], list[str]],
) -> None:
    """Do the work with a display, and print its document.

    Args:
        namespace: The parsed arguments.
        work: Plans or does what was asked for; returns the JSON document.
        lines_of: The document for people.
    """
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
        tell_warnings(document)
