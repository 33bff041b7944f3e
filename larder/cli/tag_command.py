"""``larder tag``: lists the tags of versions, and moves or deletes a tag."""

from __future__ import annotations

from functools import partial
from typing import Any

from larder.cli.arguments import Parser, add_name, add_storage
from larder.cli.command import Command, Operation

_DESCRIPTION = """\
Make the tag NAME name a version, such as one before the current one. Runs publish versions, and
leave a pinned tag where it is. Without VERSION, show which version it names, and with --history
when it was moved, from where, and by which run.\
"""


def _add_tag(parser: Parser) -> None:
    add = parser.add_argument
    add("name", metavar="NAME", help="the tag, such as latest")
    add("version", metavar="VERSION", nargs="?", help="an ID, its first digits, or a tag")
    add("--delete", action="store_true", help="delete the tag; its version stays")
    add("--history", action="store_true", help="list how the tag was moved, the newest first")
    pins = parser.add_mutually_exclusive_group()
    pin, unpin = "from now on runs leave the tag where it is", "from now on runs move it again"
    pins.add_argument("--pin", action="store_true", default=None, help=pin)
    pins.add_argument("--unpin", action="store_false", dest="pin", help=unpin)


def _operation(
    dataset: str,
    name: str,
    version: str | None,
    *,
    delete: bool,
    history: bool,
    pin: bool | None,
    **where: Any,
) -> Operation:
    from larder.catalog.stored_dataset import load_place
    from larder.catalog.tagging import TagSettings, tag, tag_lines
    from larder.config.models.copy_config import RunnerConfig

    place = load_place(dataset, **where)
    compose = partial(tag, TagSettings(place, name, version, delete, pin, history))
    batches = RunnerConfig(), place.cluster.storage, place.cluster.copy_.memory
    return Operation(1, compose, tag_lines, tag_lines, *batches)


TAG = Command("tag", _DESCRIPTION, (add_name, _add_tag, add_storage), _operation)
