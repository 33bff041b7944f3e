"""The startup hook that downloads a version before a trial starts.

Determined's entrypoint sources ``startup-hook.sh`` in bash, with ``-e`` and ``-x``, whenever a
container starts, before ranks do. So the hook runs in a subshell, which prints no commands and
leaves nothing behind, and a failure fails the trial. The program in the hook takes a lock, writes
under temporary names, compares digests, and continues earlier work. If Python is too old for
Larder, the bucket client that Determined brings copies the shards.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from larder.config.urls import parse_url
from larder.experiments.delivery import DeliveredVersion

NAME = "startup-hook.sh"
SIGNATURE = "# Made by Larder"
"""Beginning of the file: a file that begins differently is the user's own."""


def startup_hook(delivered: DeliveredVersion, directory: str) -> str:
    """Write the script that downloads a version to ``DIRECTORY/larder/DATASET``."""
    return _script(delivered, (delivered.location, directory), _WITH_LARDER)


def hook_without_larder(
    delivered: DeliveredVersion, directory: str, files: Iterable[tuple[str, str]], endpoint: str
) -> str:
    """Like `startup_hook`, for Python 3.6 and later; ``files`` are digests, or ``-``, and paths."""
    root = parse_url(delivered.root.rstrip("/"))
    place = f"{directory}/larder/{delivered.dataset}"
    lines = "\n".join(f"{digest} {path}" for digest, path in files)
    program = f'import sys\n{_CLIENTS[root.scheme]}\nfiles = """{lines}"""\n{_WITHOUT_LARDER}'
    return _script(delivered, (root.bucket, f"{root.prefix}/", place, endpoint), program)


def _script(delivered: DeliveredVersion, arguments: Iterable[str], program: str) -> str:
    return f"""\
{SIGNATURE}: downloads version {delivered.version}
# of {delivered.dataset} when a container starts, unless it is there. The trial fails if that fails.
(
  set +x
  python3 - {shlex.join(arguments)} <<'PYTHON'
{program}
PYTHON
)
"""


_WITH_LARDER = f"""\
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
    sys.exit(f"{NAME}: {{error}}")"""

_CLIENTS = {
    "s3": """\
import boto3
get = boto3.client("s3", endpoint_url=sys.argv[4] or None).download_file""",
    "gs": """\
from google.cloud import storage
client = storage.Client()
get = lambda bucket, key, path: client.bucket(bucket).blob(key).download_to_filename(path)""",
}
"""Determined itself needs both packages in every image."""

_WITHOUT_LARDER = f"""\
import fcntl, hashlib, os
bucket, prefix, root, _ = sys.argv[1:]
os.makedirs(root, exist_ok=True)
lock = open(os.path.join(root, "hook.lock"), "w")
fcntl.flock(lock, fcntl.LOCK_EX)
for line in files.splitlines():
    digest, path = line.split(" ", 1)
    target, part = os.path.join(root, path), os.path.join(root, path + ".part")
    if os.path.exists(target):
        continue
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        get(bucket, prefix + path, part)
    except Exception as error:
        sys.exit("{NAME}: %s: %s" % (path, error))
    content = hashlib.sha256()
    with open(part, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            content.update(piece)
    if digest not in ("-", content.hexdigest()):
        sys.exit("{NAME}: %s: its sha256 is another than published" % path)
    os.replace(part, target)"""
