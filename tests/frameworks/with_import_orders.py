"""Reads versions in buckets, in processes that import frameworks in one order or another.

Nothing but the standard library may be imported before the frameworks are.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
from importlib import import_module
from typing import Any


def keys(addresses: list[str], **options: Any) -> list[list[str]]:
    import larder

    loaders = [larder.open(each).loader("train", batch_size=2, **options) for each in addresses]
    return [[key for batch in loader for key in batch["key"]] for loader in loaders]


def imported(names: list[str], addresses: list[str]) -> list[list[str]]:
    for name in names:
        import_module(name)
    return keys(addresses)


def in_child(method: str, names: list[str], addresses: list[str]) -> list[list[str]]:
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.apply(imported, (names, addresses))


def first_framework(addresses: list[str]) -> dict[str, Any]:
    """TensorFlow first, here and in a forked child; other orders in a spawned one."""
    return {
        "here": imported(["tensorflow", "larder"], addresses),
        "forked": in_child("fork", ["keras"], addresses),
        "spawned": in_child("spawn", ["torch", "keras", "larder"], addresses),
    }


def in_workers(addresses: list[str]) -> list[list[list[str]]]:
    """A bucket first here, and TensorFlow first in the workers, whose function needs it."""
    before = imported(["larder"], addresses)
    of_tensors = import_module("tests.frameworks.of_tensors")
    return [before, keys(addresses, map=of_tensors.sample, workers=1)]


if __name__ == "__main__":
    function, given, packages = json.load(sys.stdin)
    sys.path.append(packages)
    print(json.dumps(globals()[function](given)))
