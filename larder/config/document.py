"""A parsed file that remembers where each of its values comes from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KeyPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """The position of a value.

    Attributes:
        where: As errors show it: ``configs/datasets/x.yaml:12`` or ``--set source.url``.
        line: From 1; 0 for a value given by --set.
    """

    where: str
    line: int


@dataclass(frozen=True, slots=True)
class Document:
    """Plain mappings, lists and scalars, and where they come from.

    Attributes:
        places: By path; the root ``()`` is always present.
        variables: By the path of a string: the environment variables used in it.
    """

    value: Any
    places: Mapping[KeyPath, Place]
    variables: Mapping[KeyPath, tuple[str, ...]]

    def place(self, path: KeyPath) -> Place:
        """The position of ``path``, or of the nearest value around it that has one."""
        while path not in self.places:
            path = path[:-1]
        return self.places[path]


def dotted(path: KeyPath) -> str:
    """``("nodes", "mounts", 0)`` as ``nodes.mounts[0]``."""
    parts = (f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return "".join(parts).removeprefix(".")
