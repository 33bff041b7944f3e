"""Larder's own modules, started as programs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from larder.machine import small_memory_environment

_PACKAGES = Path(__file__).parents[2]


def start_program(module: str) -> subprocess.Popen[bytes]:
    """Start a module with pipes to its stdin and stdout.

    Not through the shell's or the user's main module, so a script needs no guard; and out of reach
    of the terminal's Ctrl-C.
    """
    before = os.environ.get("PYTHONPATH")
    paths = [str(_PACKAGES), *([before] if before else [])]
    return subprocess.Popen(  # noqa: S603 - a module of this package
        [sys.executable, "-m", module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={
            **small_memory_environment(),
            **os.environ,
            "PYTHONPATH": os.pathsep.join(paths),
        },
        start_new_session=True,
    )
