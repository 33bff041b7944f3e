"""``larder lease``: what keeps versions from being cleaned."""

from __future__ import annotations

from collections.abc import Sequence

from larder.cli.arguments import stored_parser
from larder.cli.output import DONE, print_json, print_text
from larder.cli.signals import loading
from larder.packages import require

_DESCRIPTION = """\
Keep a version from being cleaned for some days, or end that. Without VERSION and --drop, show all
leases: those of emitted configs, of runs in progress, and those that were added with this command.\
"""


def main(arguments: Sequence[str] | None = None, prog: str = "larder lease") -> int:
    flags = stored_parser(prog, _DESCRIPTION)
    add = flags.add_argument
    add("version", metavar="VERSION", nargs="?", help="an ID, its first digits, or a tag")
    add("--for", metavar="WHO", dest="holder", help="whom or what it is for, as others see it")
    add("--days", metavar="N", type=int, default=30, help="for how long (default: 30)")
    add("--drop", metavar="NAME", action="append", default=[], help="end a lease; may be repeated")
    namespace = flags.parse_args(arguments)
    with loading():
        require("prepare")
        from larder.catalog.leasing import LeaseSettings, lease, lease_lines
        from larder.catalog.place import load_place

        place = load_place(
            namespace.dataset,
            storage=namespace.storage,
            cluster=namespace.cluster,
            settings=namespace.settings,
            config_dir=namespace.config_dir,
        )
    chosen = namespace.version, namespace.holder, namespace.days, namespace.drop
    document = lease(LeaseSettings(place, *chosen))
    if namespace.json:
        print_json(document, hint=DONE)
    elif not namespace.quiet:
        print_text("\n".join(lease_lines(document)), hint=DONE)
    return 0
