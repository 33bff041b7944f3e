"""What the benchmarks share: contenders that take turns, medians, tables and one JSON document.

The document of ``--json``, alone on stdout::

    {"benchmark": NAME,
     "cases": {CASE: {"ours": SECONDS, "peers": {PEER: SECONDS}, "target": RATIO, "met": BOOL}}}

``target`` is how many times the first peer's time ours may take, ``met`` whether it did; both are
null where no target is set.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Protocol, TypeVar

__all__ = [
    "Contender",
    "Figure",
    "Stopwatch",
    "alternate",
    "arguments",
    "arguments_parser",
    "document",
    "say",
    "settle",
    "table",
]

Result = TypeVar("Result")

Contender = Callable[[], Mapping[str, float]]
"""Does the work once; returns the seconds it took, by what is measured."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: the less the better. Of a peer that is not installed the figure is None.

    The target is how many times the first peer's figure ours may be; ``limit`` is what ours may be
    at most, in the unit of ``name``.
    """

    name: str
    ours: float
    peers: Mapping[str, float | None] = field(default_factory=dict)
    target: float | None = None
    limit: float | None = None

    @property
    def ratio(self) -> float | None:
        """Ours as a multiple of the first peer's."""
        first = next(iter(self.peers.values()), None)
        return self.ours / first if first else None

    @property
    def met(self) -> bool | None:
        """Whether the target or the limit is met, if there is one."""
        if self.limit is not None:
            return self.ours <= self.limit
        if self.target is None or self.ratio is None:
            return None
        return self.ratio <= self.target


class Stopwatch:
    """Adds up the seconds spent in some functions, for a run that tells where the time goes."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, its time counted under ``name``."""

        def call(*positional: Any, **named: Any) -> Any:
            start = perf_counter()
            try:
                return function(*positional, **named)
            finally:
                self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

        return call

    @contextmanager
    def patched(self, name: str, owner: Any, attribute: str) -> Iterator[None]:
        """Count calls of ``owner.attribute`` under ``name`` for the length of the block."""
        function = getattr(owner, attribute)
        setattr(owner, attribute, self.timed(name, function))
        try:
            yield
        finally:
            setattr(owner, attribute, function)


def alternate(
    contenders: Mapping[str, Contender], runs: int, *, before: Callable[[], None]
) -> dict[str, dict[str, float]]:
    """Let the contenders take turns, ``runs`` times, after a round that does not count.

    ``before`` is called before every turn, outside of the time. Returns the medians, by contender
    and by what it measured.
    """
    measured: dict[str, list[Mapping[str, float]]] = {name: [] for name in contenders}
    for turn in range(runs + 1):
        for name, contender in contenders.items():
            before()
            seconds = contender()
            say(f"  round {turn} of {runs}: {name} {_listed(seconds)}")
            if turn:
                measured[name].append(seconds)
    return {
        name: {key: median(each[key] for each in rounds) for key in rounds[0]}
        for name, rounds in measured.items()
    }


def apart(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a new process, so that no function uses memory that another has left."""
    context = get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as executor:
        return executor.submit(function, *arguments).result()


def arguments(description: str, argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The flags that every benchmark has."""
    return arguments_parser(description).parse_args(argv)


def arguments_parser(description: str) -> argparse.ArgumentParser:
    """A parser of the flags that every benchmark has, for one that has more."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--runs", type=int, default=5, help="rounds that count (default %(default)s)"
    )
    parser.add_argument(
        "--files-scale", type=float, default=1.0, help="so many times the files, such as 0.01"
    )
    parser.add_argument("--directory", default=None, help="where to work (default: a new one)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    return parser


class Compared(Protocol):
    """A case of a document; what is measured, and in what unit, is in its name."""

    @property
    def name(self) -> str:
        """What is compared."""

    @property
    def ours(self) -> float:
        """Ours."""

    @property
    def peers(self) -> Mapping[str, float | None]:
        """The others."""

    @property
    def target(self) -> float | None:
        """How many times the first of the others ours may be."""

    @property
    def met(self) -> bool | None:
        """Whether the target is met, if there is one."""


def document(benchmark: str, cases: Iterable[Compared]) -> str:
    content = {
        case.name: {
            "ours": case.ours,
            "peers": dict(case.peers),
            "target": case.target,
            "met": case.met,
        }
        for case in cases
    }
    return json.dumps({"benchmark": benchmark, "cases": content})


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of text, the first left-aligned, the others right-aligned."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if place else text.ljust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def say(text: str) -> None:
    """A line for people, on stderr."""
    print(text, file=sys.stderr, flush=True)


def settle() -> None:
    """Wait for pending writes to the disk, so that they do not affect the next measurement."""
    os.sync()


def _listed(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.3f} s" for name, value in seconds.items())


def ask_program(python: str, module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of a module, run by another Python: JSON on stdin, and on the last line of stdout.

    Raises:
        RuntimeError: It failed; with the end of what it said.
    """
    done = subprocess.run(
        [python, "-m", module],
        cwd=Path(__file__).parents[1],
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{request.get('peer', python)}: {done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]))


def installed(packages: Mapping[str, str]) -> dict[str, str]:
    """The version of each of some packages that this Python has, by a name for each."""
    found = {}
    for name, package in packages.items():
        try:
            found[name] = version(package)
        except PackageNotFoundError:
            continue
    return found
