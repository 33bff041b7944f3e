"""Play the rows with every pair of options, and random ones: ``python -m tests.oracle KIND ROWS``.

Those of frameworks need an environment that has them, and a place where datasets are prepared.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path
from typing import Any

from tests.oracle.frameworks import FRAMEWORK_MIX, FRAMEWORKS, AskedOf
from tests.oracle.lab import Asked, Lab
from tests.oracle.rows import MIX, SINGLE, Row, covering, drawn
from tests.oracle.scene import play

KINDS: dict[str, Any] = {
    "single": SINGLE,
    "mix": MIX,
    "frameworks": FRAMEWORKS,
    "frameworks-mix": FRAMEWORK_MIX,
}


def played(lab: Lab, row: Row, seed: int) -> str | None:
    """The first difference of a row, or None."""
    try:
        asked = AskedOf if "consumer" in row else Asked
        return play(asked(lab, row, seed), seed)
    except Exception as error:  # noqa: BLE001 - the next rows are played
        return f"{type(error).__name__}: {error}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=tuple(KINDS))
    parser.add_argument("rows", type=int, help="random rows, after those with every pair")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    parser.add_argument("--place", type=Path, help="keep the datasets here, for the next time")
    parser.add_argument("--only", type=int, help="the number of a row")
    arguments = parser.parse_args()
    options = KINDS[arguments.kind]
    draw = random.Random(arguments.seed)
    rows = [*covering(options), *(drawn(options, draw) for _ in range(arguments.rows))]
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

        lab, bad = Lab(place, partial(server, "s3"), partial(server, "gcs")), 0
        for number, row in enumerate(rows):
            if arguments.only not in (None, number):
                continue
            if found := played(lab, row, arguments.seed + number):
                bad += 1
                print(f"{number} {row}\n    {found[:600]}", flush=True)
    print(f"{len(rows)} rows of seed {arguments.seed}, of which {bad} differ")
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
