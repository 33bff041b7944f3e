"""Data beside the model code: the limit of files that Determined sends, and files left out.

Source: ``determined/common/context.py``, releases 0.19.9 to 0.38.1.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from larder.disk import disk_errors
from larder.errors import ConfigError
from larder.experiments.delivery import ConfigFile, DeliveredVersion, VersionContents
from larder.units import format_bytes

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

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
