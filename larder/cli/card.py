"""``larder card``: the data card of a version that is published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from larder.cli.arguments import version_parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.packages import require

_DESCRIPTION = """\
Draw the data card of a published version again: one HTML page with its splits, classes, sizes,
some samples and where it comes from. It is written to versions/ID/card/ in the storage.\
"""


def main(arguments: Sequence[str] | None = None, prog: str = "larder card") -> int:
    namespace = version_parser(prog, _DESCRIPTION).parse_args(arguments)
    dataset, _, version = namespace.version.partition("@")
    with loading():
        require("prepare")
        require("card")
        from larder.card.draw import card, card_lines
        from larder.pipeline.settings import load_settings

        settings = load_settings(
            dataset,
            namespace.cluster,
            config_dir=Path(namespace.config_dir),
            settings=namespace.settings,
            reads_source=False,
        )
    document = card(settings, version or "latest")
    if namespace.json:
        print_json(document, hint=DONE)
    elif not namespace.quiet:
        print_text("\n".join(card_lines(document)), hint=DONE)
    return 0
