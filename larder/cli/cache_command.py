"""``larder cache``: the caches of decorated functions in a storage, listed or removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from larder.cli.arguments import Parser, add_json, parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.errors import printable
from larder.units import format_bytes, format_count, table_lines

_DESCRIPTION = """\
List or remove what larder.cache_train_dataset and larder.cache_validation_dataset have cached. A
cache is not removed while it is read, or while a machine that has read it has a lease of it.\
"""


def main(arguments: Sequence[str] | None = None, prog: str = "larder cache") -> int:
    namespace = _parser(prog).parse_args(arguments)
    with loading():
        from larder.datalayer.cache_catalog import list_caches, remove_caches
    if namespace.action == "ls":
        document = list_caches(namespace.storage)
        lines = _listing(document)
    else:
        chosen = namespace.id, namespace.version, namespace.split
        document = remove_caches(*chosen, namespace.storage, namespace.force)
        amount = f"{format_count(document['objects'], 'object')}, {format_bytes(document['bytes'])}"
        lines = [f"removed {printable(', '.join(document['removed']))}: {amount}"]
    if namespace.json:
        print_json(document, hint=DONE)
    else:
        print_text("\n".join(lines), hint=DONE)
    return 0


def _parser(prog: str) -> Parser:
    flags = parser(prog, _DESCRIPTION)
    actions = flags.add_subparsers(dest="action", metavar="ls|rm", required=True)
    ls = actions.add_parser("ls", allow_abbrev=False, help="list them")
    rm = actions.add_parser("rm", allow_abbrev=False, help="remove those of a version")
    rm.add_argument("id", metavar="ID", help="the dataset_id of the decorators")
    rm.add_argument("version", metavar="VERSION", help="their dataset_version")
    rm.add_argument("--split", choices=("train", "val"), help="only one of both")
    at_stake = (
        "although machines have leases: training there that has not copied all files fails, and"
        " trials that go on later build the cache again; not while a process has it open"
    )
    rm.add_argument("--force", action="store_true", help=at_stake)
    default = "by default where the decorators find it: $LARDER_CACHE, or ~/data/determined"
    for action in (ls, rm):
        action.add_argument("storage", metavar="STORAGE", nargs="?", help=default)
        add_json(action)
    return flags


def _listing(document: Mapping[str, Any]) -> list[str]:
    if not document["caches"]:
        return [f"{document['storage']} has no caches of functions"]
    head = ("id", "version", "split", "records", "bytes", "built", "in use by")
    return table_lines([head, *map(_row, document["caches"])])


def _row(cache: Mapping[str, Any]) -> list[str]:
    about = cache["problem"] or "; ".join(cache["used_by"]) or "nobody"
    names = cache["id"], cache["version"], cache["split"]
    sizes = f"{cache['records'] or 0:,}", format_bytes(cache["bytes"] or 0)
    return [printable(each) for each in (*names, *sizes, cache["built"], about)]
