"""``larder advise``: every delivery of a dataset to a cluster, and why it is possible or not."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from larder.cli.arguments import dataset_parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.packages import require

_DESCRIPTION = """\
Show how training could reach a dataset: every delivery, the rules that speak for or against it,
when training could start, and what it moves, costs and needs. Of the version that latest names, or
else of the plan of a run, for which the source is listed. Nothing is written.\
"""


def main(arguments: Sequence[str] | None = None, prog: str = "larder advise") -> int:
    namespace = dataset_parser(prog, _DESCRIPTION).parse_args(arguments)
    with loading():
        require("prepare")
        from larder.pipeline.advise import advise, advise_lines
        from larder.pipeline.settings import load_settings

        load = partial(
            load_settings,
            namespace.dataset,
            namespace.cluster,
            config_dir=Path(namespace.config_dir),
            settings=namespace.settings,
        )
    document = advise(load)
    if namespace.json:
        print_json(document, hint=DONE)
    elif not namespace.quiet:
        print_text("\n".join(advise_lines(document)), hint=DONE)
    return 0
