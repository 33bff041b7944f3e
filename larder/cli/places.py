"""What the commands share that name a source and a storage themselves."""

from __future__ import annotations

import argparse
from typing import Any

from larder.cli.command import Parser, add_shared, parser, shared_parameters


def places_parser(prog: str, description: str) -> Parser:
    """A parser with the arguments SOURCE and STORAGE and the flags of these commands."""
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
        "include": list(namespace.include),
        "exclude": list(namespace.exclude),
        **shared_parameters(namespace),
    }
