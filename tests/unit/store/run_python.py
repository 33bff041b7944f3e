"""A program in a process of its own."""

import os
import subprocess
import sys


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it, where warnings are errors."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
