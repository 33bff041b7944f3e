"""Files that a config of Determined needs beside it: a startup hook, or the data itself.

The hook downloads a version before a trial starts. Determined's entrypoint sources
``startup-hook.sh`` in bash, with ``-e`` and ``-x``, whenever a container starts, before ranks do.
So the hook runs in a subshell, which prints no commands and leaves nothing behind, and a failure
fails the trial. The program in the hook takes a lock, writes under temporary names, compares
digests, and continues earlier work. If Python is too old for Larder, the bucket client that
Determined brings copies the shards.

Data beside the model code (delivery ``inline``) must fit into what Determined sends with it: see
``determined/common/context.py``, releases 0.19.9 to 0.38.1.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from larder.config.urls import parse_url
from larder.disk import disk_errors
from larder.errors import ConfigError
from larder.experiments.delivery import ConfigFile, DeliveredVersion, VersionContents
from larder.units import format_bytes

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

HOOK = "startup-hook.sh"
SIGNATURE = "# Made by Larder"
"""Beginning of the file: a file that begins differently is the user's own."""

_WITH_LARDER = f"""\
import sys

try:
    import larder
    from larder.errors import LarderError
except ImportError:
    sys.exit("{HOOK}: Larder is not in this image: install larder-data there")
print("{HOOK}: downloading", *sys.argv[1:2], "to", *sys.argv[2:], flush=True)
try:
    larder.open(sys.argv[1]).copy_to(sys.argv[2])
except LarderError as error:
    sys.exit(f"{HOOK}: {{error}}")"""

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
        sys.exit("{HOOK}: %s: %s" % (path, error))
    content = hashlib.sha256()
    with open(part, "rb") as file:
        for piece in iter(lambda: file.read(1 << 20), b""):
            content.update(piece)
    if digest not in ("-", content.hexdigest()):
        sys.exit("{HOOK}: %s: its sha256 is another than published" % path)
    os.replace(part, target)"""
INLINE = "data"
"""The folder with the data, beside the model code."""
_IGNORED = (
    "__pycache__/",
    "*.py[co]",
    "*$py.class",
    "terraform",
    "terraform_data",
    "terraform.tfstate*",
    "terraform.tfvars*",
    ".terraform*",
    ".git/",
    ".vscode/",
    ".idea/",
    ".mypy_cache/",
    "/shared_fs",
)
"""Patterns of files that are left out in any case."""


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


def inline_mark(delivered: DeliveredVersion, contents: VersionContents) -> ConfigFile:
    """Make the file that names the version beside the model code."""
    mark = {"dataset": delivered.dataset, "version": delivered.version, "digest": contents.digest}
    return ConfigFile(f"{INLINE}/larder.json", f"{json.dumps(mark, indent=1)}\n", with_data=True)


def check_context(
    files: Mapping[str, int], directory: Path, limit_bytes: int, *, replaced: str = ""
) -> None:
    """Refuse files that Determined would leave out, or not accept with the rest of the directory.

    Args:
        files: The size of each new file, by its path in the directory.
        directory: The directory to submit, which may have model code and a ``.detignore``.
        limit_bytes: The most bytes that may be sent.
        replaced: A folder in the directory that will have these files only.

    Raises:
        ConfigError: ``config.path``: a file is left out; ``config.invalid_value``: too much.
    """
    ignored = _ignored(directory)
    for name in files:
        folders = [f"{folder}/" for folder in PurePosixPath(name).parents if folder.name]
        if any(map(ignored.match_file, (name, *folders))):
            message = "Determined would leave it out of what it sends"
            hint = f"remove its pattern from {directory / '.detignore'}, or rename the dataset"
            raise ConfigError("config.path", message, where=name, hint=hint)
    present = _present(directory, ignored)
    sizes = {name: size for name, size in present if not name.startswith(f"{replaced}/")}
    sizes.update(files)
    packed_bytes = sum(3 * -(-size // 3) for size in sizes.values())
    if packed_bytes > limit_bytes:
        message = (
            f"inline takes {format_bytes(packed_bytes)} with the model code, and the limit is"
            f" {limit_bytes:,} bytes"
        )
        hint = "choose another delivery, such as download"
        raise ConfigError("config.invalid_value", message, where="experiment.delivery", hint=hint)


def _ignored(directory: Path) -> GitIgnoreSpec:
    from pathspec import GitIgnoreSpec

    path = directory / ".detignore"
    with disk_errors(path, reading=True):
        lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return GitIgnoreSpec.from_lines([*_IGNORED, *lines])


def _present(directory: Path, ignored: GitIgnoreSpec) -> Iterator[tuple[str, int]]:
    """Yield the files of the directory that Determined sends, and their sizes."""
    for folder, folders, names in os.walk(directory):
        place = Path(folder).relative_to(directory)
        folders[:] = [each for each in folders if not ignored.match_file(f"{place / each}/")]
        for name in names:
            path = (place / name).as_posix()
            if name != ".detignore" and not ignored.match_file(path):
                with disk_errors(directory / path, reading=True):
                    yield path, (directory / path).stat().st_size
