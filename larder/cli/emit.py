"""``larder emit``: the experiment config of a version that is published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from larder.cli.arguments import Parser, add_output, version_parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.packages import require

_DESCRIPTION = """\
Write the experiment config of a published version, as the run that prepared it did: for another
cluster that sees the same storage, another template, or an older version. Nothing is prepared, and
the source is not read.\
"""


def _parser(prog: str) -> Parser:
    parser = version_parser(prog, _DESCRIPTION)
    add_output(parser)
    parser.add_argument(
        "--force",
        action="store_true",
        help="replace what the template sets in the place of the data, instead of refusing it",
    )
    return parser


def main(arguments: Sequence[str] | None = None, prog: str = "larder emit") -> int:
    namespace = _parser(prog).parse_args(arguments)
    dataset, _, version = namespace.version.partition("@")
    with loading():
        require("prepare")
        from larder.pipeline.emit import emit, emit_lines
        from larder.pipeline.settings import load_settings

        settings = load_settings(
            dataset,
            namespace.cluster,
            config_dir=Path(namespace.config_dir),
            settings=namespace.settings,
            output=Path(namespace.output) if namespace.output else None,
            reads_source=False,
            replaces=namespace.force,
        )
    document = emit(settings, version or "latest")
    if namespace.json:
        print_json(document, hint=DONE)
    elif not namespace.quiet:
        print_text("\n".join(emit_lines(document)), hint=DONE)
    return 0
