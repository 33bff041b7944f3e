"""The startup hook that downloads a version before a trial starts.

Determined's entrypoint sources ``startup-hook.sh`` in bash, with ``-e`` and ``-x``, whenever a
container starts, before ranks do. So the hook runs in a subshell, which prints no commands and
leaves nothing behind, and fails the trial if it fails. What it runs takes a lock, writes under
temporary names, compares digests, and does what was not done before.
"""

from __future__ import annotations

import shlex

from larder.experiments.delivery import DeliveredVersion

NAME = "startup-hook.sh"
SIGNATURE = "# Made by Larder"
"""How the file begins: one that begins differently is the user's own."""


def startup_hook(delivered: DeliveredVersion, directory: str) -> str:
    """The script that downloads a version to ``DIRECTORY/larder/DATASET``."""
    return f"""\
{SIGNATURE}: downloads version {delivered.version}
# of {delivered.dataset} when a container starts, unless it is there. The trial fails if that fails.
(
  set +x
  python3 - {shlex.quote(delivered.location)} {shlex.quote(directory)} <<'PYTHON'
import sys

try:
    import larder
    from larder.errors import LarderError
except ImportError:
    sys.exit("{NAME}: Larder is not in this image: install larder-data there")
print("{NAME}: downloading", *sys.argv[1:2], "to", *sys.argv[2:], flush=True)
try:
    larder.open(sys.argv[1]).copy_to(sys.argv[2])
except LarderError as error:
    sys.exit(f"{NAME}: {{error}}")
PYTHON
)
"""
