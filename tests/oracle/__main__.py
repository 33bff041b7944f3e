"""Play rows: ``python -m tests.oracle KIND ROWS [--seed N] [--only ROW]``."""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
import traceback
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.oracle.frameworks import FRAMEWORK_MIX, FRAMEWORKS, AskedOf
from tests.oracle.lab import Asked, Lab
from tests.oracle.numbers import play_numbers
from tests.oracle.rows import MIX, SINGLE, covering, drawn
from tests.oracle.scene import play

KINDS = {
    "single": SINGLE,
    "mix": MIX,
    "frameworks": FRAMEWORKS,
    "frameworks-mix": FRAMEWORK_MIX,
}

PLACES: dict[str, Any] = {"form": SINGLE["form"], "place": ("directory", "s3", "gcs")}
NUMBERS = {name: values[:1] for name, values in SINGLE.items()} | PLACES


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=(*KINDS, "numbers"))
    parser.add_argument("rows", type=int, help="random rows; 0: the rows with every pair")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--without", action="append", default=[], help="such as map=keeping")
    parser.add_argument("--say", action="store_true", help="name each row before it is played")
    arguments = parser.parse_args()
    options = dict(KINDS.get(arguments.kind, NUMBERS))
    asked = Asked if "consumer" not in options else AskedOf
    for name, _, text in (each.partition("=") for each in arguments.without):
        options[name] = [value for value in options[name] if str(value) != text]
    draw = random.Random(arguments.seed)
    rows = [drawn(options, draw) for _ in range(arguments.rows)] or [*covering(options)]
    with ExitStack() as stack:
        place = arguments.place or Path(stack.enter_context(tempfile.TemporaryDirectory()))

        @cache
        def server(kind: str) -> Any:  # pytest, which they import, is not where the frameworks are
            from tests.support import gcs_emulator, servers

            own = {**servers.S3Server("none", "").environment, "NO_GCE_CHECK": "true"}
            del own["AWS_ENDPOINT_URL"]
            os.environ.update(own)
            serve = servers.rclone_s3 if kind == "s3" else gcs_emulator.gcs_emulator
            return stack.enter_context(serve())

        lab, begun, bad = (
            Lab(place, partial(server, "s3"), partial(server, "gcs")),
            time.monotonic(),
            0,
        )
        for number, row in enumerate(rows):
            if arguments.only not in (None, number):
                continue
            if arguments.say:
                print(number, flush=True)
            seed = 1000 * arguments.seed + number
            try:
                if arguments.kind == "numbers":
                    found = play_numbers(lab, row["form"], row["place"], seed)
                else:
                    found = play(asked(lab, row, seed), seed)
            except Exception as error:  # noqa: BLE001 - the next rows are played
                found = f"{type(error).__name__}: {error}"
                if arguments.only is not None:
                    traceback.print_exc()
            if found:
                bad += 1
                print(f"{number} {row}\n    {found[:600]}", flush=True)
    print(f"{len(rows)} rows, {bad} differ, {time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
