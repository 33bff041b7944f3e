"""Which samples there are, and which change: numbers, and the keys that they have.

Imports nothing of Larder: the peers run it too, in an environment of their own.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_SEED = 7


@dataclass(frozen=True, slots=True)
class Picks:
    """What changes, by the numbers of samples, sorted.

    Attributes:
        added: A new sample comes after each of these, in the order of the keys.
        removed: These go.
        changed: These get other content.
    """

    added: tuple[int, ...] = ()
    removed: tuple[int, ...] = ()
    changed: tuple[int, ...] = ()


def pick(count: int, *, added: int = 0, removed: int = 0, changed: int = 0) -> Picks:
    """Choose samples at random, the same ones every time, no one twice."""
    rng = random.Random(_SEED)
    chosen = rng.sample(range(count), removed + changed)
    return Picks(
        added=tuple(sorted(rng.sample(range(count), added))),
        removed=tuple(sorted(chosen[:removed])),
        changed=tuple(sorted(chosen[removed:])),
    )


@dataclass(frozen=True, slots=True)
class Names:
    """Keys in class folders of two splits; the order of the keys is that of the numbers.

    Attributes:
        count: Number of samples before any change; the last tenth is for validation.
        ext: Extension of the objects.
    """

    count: int
    ext: str

    def key(self, number: int, *, added: bool = False) -> str:
        """The key of a sample, or of the one that is added after it."""
        validation = self.count // 10
        first, size, split = 0, self.count - validation, "train"
        if number >= size:
            first, size, split = size, validation, "val"
        classes = max(1, min(1000, self.count // 200))
        folder = (number - first) * classes // size
        return f"{split}/n{folder:08d}/s{number:08d}{'a' if added else ''}.{self.ext}"

    def number(self, key: str) -> tuple[int, bool]:
        """The number of a key, and whether it is one that was added."""
        name = key.rpartition("/")[2].removesuffix(f".{self.ext}")
        return int(name[1:9]), name.endswith("a")


def label_of(key: str) -> int:
    """The label of a key: the number of its folder."""
    return int(key.split("/", 2)[1][1:])
