"""Checks one cache file on the local disk: its sha256, then every record.

A file whose sha256 differs is opened by another process only: damage to LMDB's own pages may kill
whoever reads them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

from larder.cache.file import open_file
from larder.cache.layout import CacheFileFacts
from larder.errors import DamageError

__all__ = ["damaged_records", "inspect_records", "main"]

_SECONDS = 3600.0
"""How long the other process may take: longer than any file takes to read."""


def inspect_records(path: Path, facts: CacheFileFacts, fields: Mapping[str, str]) -> str:
    """Read every record of a file whose sha256 is right.

    Args:
        path: The file.
        facts: What was published of it.
        fields: The types of its fields, as they were published.

    Returns:
        What is wrong; empty if nothing is.
    """
    try:
        with closing(open_file(path, facts)) as reader:
            reader.verify()
            found = {field.name: field.kind for field in reader.schema.fields}
    except DamageError as error:
        place = error.where.removeprefix(str(path)).lstrip(", ")
        return f"{place}: {error.message}" if place else error.message
    return "" if found == dict(fields) else f"its fields are {found}, not {dict(fields)}"


def damaged_records(path: Path, facts: CacheFileFacts) -> list[int] | None:
    """The numbers of the damaged records of a damaged file; None if not even that can be read.

    Args:
        path: The file.
        facts: What was published of it.
    """
    if path.stat().st_size != facts.bytes:
        return None
    package = str(Path(__file__).parents[2])
    paths = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    command = [sys.executable, "-m", __name__, str(path), json.dumps(asdict(facts))]
    try:
        done = subprocess.run(  # noqa: S603 - this interpreter, and no shell
            command,
            capture_output=True,
            env={**os.environ, "PYTHONPATH": paths},
            timeout=_SECONDS,
            check=False,
        )
        found = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return found if isinstance(found, list) else None


def main(arguments: Sequence[str]) -> int:
    """The other process: prints the numbers of the damaged records as JSON.

    Args:
        arguments: The path, and the published facts as JSON.
    """
    path, facts = Path(arguments[0]), CacheFileFacts(**json.loads(arguments[1]))
    bad = []
    try:
        with closing(open_file(path, facts)) as reader:
            for number in range(facts.records):
                try:
                    reader[number]
                except DamageError:
                    bad.append(number)
    except DamageError:
        sys.stdout.write("null")
        return 0
    sys.stdout.write(json.dumps(bad))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
