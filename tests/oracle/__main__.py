"""Play rows: ``python -m tests.oracle KIND ROWS [--seed N] [--only ROW]``."""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
import traceback
from contextlib import ExitStack
from functools import cache
from pathlib import Path

from tests.oracle.lab import Asked, Lab
from tests.oracle.rows import MIX, SINGLE, covering, drawn
from tests.oracle.scene import play
from tests.support.gcs_emulator import gcs_emulator
from tests.support.servers import S3Server, rclone_s3


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=("single", "mix"))
    parser.add_argument("rows", type=int, help="random rows; 0: the rows with every pair")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int)
    parser.add_argument("--place", type=Path)
    parser.add_argument("--say", action="store_true", help="name each row before it is played")
    arguments = parser.parse_args()
    options = SINGLE if arguments.kind == "single" else MIX
    draw = random.Random(arguments.seed)
    rows = [drawn(options, draw) for _ in range(arguments.rows)] or [*covering(options)]
    own = {**S3Server("none", "").environment, "NO_GCE_CHECK": "true"}
    os.environ.update({name: value for name, value in own.items() if name != "AWS_ENDPOINT_URL"})
    with ExitStack() as stack:
        place = arguments.place or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        s3 = cache(lambda: stack.enter_context(rclone_s3()))
        gcs = cache(lambda: stack.enter_context(gcs_emulator()))
        lab, begun, bad = Lab(place, s3, gcs), time.monotonic(), 0
        for number, row in enumerate(rows):
            if arguments.only not in (None, number):
                continue
            if arguments.say:
                print(number, flush=True)
            seed = 1000 * arguments.seed + number
            try:
                found = play(Asked(lab, row, seed), seed)
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
