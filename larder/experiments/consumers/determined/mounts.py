"""Bind mounts that let containers of Determined see a directory, and the rules for mounts. Pure.

Paths are normalised and compared as strings. Determined's schemas refuse only a relative
``host_path`` and a ``container_path`` of ``.``; the other rules prevent failures in agents and in
the merging of configs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from larder.config.models.cluster import Mount
from larder.config.urls import parse_url
from larder.errors import ConfigError

WORK_DIR = "/run/determined/workdir"
"""Determined's directory for model code; a relative ``container_path`` is joined to this path."""

_UNREADABLE = re.compile(r"[{}\\]|::")  # special in brace patterns


class Binding(NamedTuple):
    """One mount, normalised, and the path of the storage in the container.

    ``claim`` is the persistent volume claim behind the mount, if any.
    """

    host_path: str
    container_path: str
    read_only: bool
    data_path: str
    claim: str | None = None


def bind(storage_url: str, mounts: Sequence[Mount], *, where: str = "") -> Binding:
    """Choose the bind mount through which containers see the storage, a ``file:`` URL or absolute
    path.

    Without mounts, the storage directory itself is mounted, at the same path in the container.

    Raises:
        ConfigError: ``config.path``: the directory is not absolute, a mount breaks a rule, or the
            directory is inside no mount or several mounts.
    """
    directory = _directory(storage_url)
    usable = mounts or (Mount(host_path=directory, container_path=directory),)
    problems = list(mount_problems([mount.model_dump() for mount in usable]))
    problems += [
        (f"{number}.container_path", "must be absolute, so that the config can name the data")
        for number, mount in enumerate(usable)
        if mount.container_path.strip("./") and not mount.container_path.startswith("/")
    ]
    if problems:
        text = "; ".join(f"{path} {message}" for path, message in problems)
        raise _refused(f"unusable bind mount: {text}", where, "fix nodes.mounts")
    return _chosen(directory, usable, where)


def _chosen(directory: str, mounts: Sequence[Mount], where: str) -> Binding:
    holding = [mount for mount in mounts if under(directory, normal(mount.host_path)) is not None]
    if len(holding) != 1:
        which = ", ".join(mount.host_path for mount in holding) or "none of them"
        message = f"{directory} must be inside the host_path of exactly one mount, not {which}"
        raise _refused(message, where, "fix nodes.mounts or storage.url")
    host, container = normal(holding[0].host_path), normal(holding[0].container_path)
    data = posixpath.join(container, under(directory, host) or "").rstrip("/")
    check_patterns(data, where)
    return Binding(host, container, holding[0].read_only, data, holding[0].claim)


def check_patterns(root: str, where: str) -> None:
    """Refuse a path or URL that cannot be in a brace pattern."""
    if _UNREADABLE.search(root):
        message = f"{root} contains a brace, a backslash or ::, which are special in brace patterns"
        raise _refused(message, where, "choose another directory or prefix")


def _directory(storage_url: str) -> str:
    path = parse_url(storage_url).rest
    if not path.startswith("/") or ".." in path.split("/"):
        message = "a bind mount needs the absolute path of the storage directory, without .."
        raise _refused(message, storage_url, "write storage.url in full")
    return normal(path)


def _refused(message: str, where: str, hint: str) -> ConfigError:
    return ConfigError("config.path", message, where=where, hint=hint)


def normal(path: str) -> str:
    """Normalise a path, without ``//``, ``/./`` and trailing slashes."""
    return re.sub(r"^//", "/", posixpath.normpath(path))


def under(path: str, directory: str) -> str | None:
    """Return ``path`` relative to ``directory``, empty if equal; None if not inside."""
    path, directory = path.rstrip("/"), directory.rstrip("/")
    if path == directory:
        return ""
    return path[len(directory) + 1 :] if path.startswith(f"{directory}/") else None


def hides(path: Any, mount: str) -> bool:
    """Whether a mount at a path hides Larder's own mount."""
    return isinstance(path, str) and under(normal(path), mount) is not None


def container_target(container_path: str) -> str:
    """Return Determined's path for a ``container_path``, absolute and normalised."""
    return normal(posixpath.join(WORK_DIR, container_path))


def mount_problems(mounts: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Check bind mounts whose fields have the right types.

    Yields:
        The field, such as ``0.host_path``, and the broken rule.
    """
    seen: dict[str, int] = {}
    for number, mount in enumerate(mounts):
        yield from _path_problems(number, mount["host_path"], mount["container_path"])
        first = seen.setdefault(container_target(mount["container_path"]), number)
        if first != number:
            message = f"is also the container_path of mount {first}; Determined silently drops one"
            yield f"{number}.container_path", message


def _path_problems(number: int, host: str, container: str) -> Iterator[tuple[str, str]]:
    if not host.startswith("/"):
        yield f"{number}.host_path", f"must be an absolute path, not {host!r}"
    if ".." in host.split("/"):
        yield f"{number}.host_path", "must not contain .."
    if ".." in container.split("/"):
        yield f"{number}.container_path", "must not contain .."
    elif under(WORK_DIR, container_target(container)) is not None:
        message = f"must not be {container!r}: it would hide the model code in {WORK_DIR}"
        yield f"{number}.container_path", message
