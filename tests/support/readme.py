"""Run every command and example of README.md after ``make demo``, in a clone without more packages.

``python -m tests.support.readme``, in the root directory of the clone.
"""

import os
import re
import subprocess
import sys
import time
from pathlib import Path

_ELSEWHERE = ("make demo ", "make test ", "make serve ")
"""Run by the other parts of .ci/run, and by tests/e2e/test_serve.py."""

_OWN_BUCKET = "--cluster aws-us-west-2"
"""A new user has none: the command says which variable to set."""


def main() -> None:
    """Run the commands in the order of the page, then the examples; the first failure ends it."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", Path("README.md").read_text(), re.M | re.S)
    paths = f"{Path('.venv/bin').absolute()}:{os.environ['PATH']}"
    commands = [
        line
        for language, block in blocks
        if not language
        for line in block.splitlines()
        if line.startswith(("make ", "python ")) and not line.startswith(_ELSEWHERE)
    ]
    examples = [block for language, block in blocks if language == "python"]
    assert commands
    assert examples
    for line in commands:
        _run(line.replace("/some/directory", "$PWD/docs"), ["bash", "-c"], paths)
    for block in examples:
        _run(block, ["python", "-c"], paths)


def _run(line: str, command: list[str], paths: str) -> None:
    started = time.monotonic()
    environment = {**os.environ, "PATH": paths}
    done = subprocess.run(
        [*command, line], env=environment, capture_output=True, text=True, check=False
    )
    name = line.partition("#")[0].strip().partition("\n")[0]
    print(f"{time.monotonic() - started:.0f} s: {name}", flush=True)
    needs_bucket = _OWN_BUCKET in line
    refused = done.returncode == 2 and "error[config.missing_variable]" in done.stderr
    if done.returncode != 0 and not (needs_bucket and refused):
        sys.exit(f"{name}: status {done.returncode}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    main()
