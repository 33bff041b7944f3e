"""``larder warm``: downloads a version to a directory, before training starts."""

from __future__ import annotations

from collections.abc import Sequence

from larder.cli.arguments import add_json, parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading

_DESCRIPTION = """\
Copy a version to DIR, from where larder.open reads it without the storage. What is there is not
copied again; of several processes that run this, one copies and the others wait. Every file is
compared with its digest before it appears.\
"""


def main(arguments: Sequence[str] | None = None, prog: str = "larder warm") -> int:
    flags = parser(prog, _DESCRIPTION)
    flags.add_argument(
        "address",
        metavar="DATASET",
        help="as for larder.open: STORAGE/larder/NAME, with @ID or @TAG, or the URL of a version",
    )
    flags.add_argument("--to", metavar="DIR", required=True, help="where to; made if needed")
    add_json(flags)
    namespace = flags.parse_args(arguments)
    with loading():
        import larder
    data = larder.open(namespace.address)
    location = str(data.copy_to(namespace.to))
    if namespace.json:
        described = {"dataset": data.dataset, "version": data.version, "location": location}
        print_json(described, hint=DONE)
    else:
        print_text(location, hint=DONE)
    return 0
