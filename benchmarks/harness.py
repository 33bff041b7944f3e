"""The parts of all benchmarks: flags, contenders that take turns, and what is printed at the end.

The last lines have a case each: ours, the peers' with the ratio of ours to theirs, and the target
where there is one. With ``--json`` they go to stderr, and stdout gets one document alone::

    {"benchmark": NAME,
     "cases": {CASE: {"ours": NUMBER, "peers": {PEER: NUMBER}, "target": RATIO, "met": BOOL}}}

``target`` is how many times the first peer's figure ours may be, ``met`` whether it was; both are
null where no target is set, and ``met`` where the peer is not installed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TextIO, TypeVar

ROOT = Path(__file__).parents[1]
LARDER = [sys.executable, "-m", "larder.cli.main"]
KEPT_SECONDS = 3600  # about as long as a server that is only read keeps its MD5s
SECONDS, CPU, PEAK = "seconds", "CPU seconds", "peak bytes"

Result = TypeVar("Result")

Measured = Mapping[str, float]
"""Figures of one turn, by what is measured."""

Contender = Callable[[], Measured | None]


@dataclass(frozen=True, slots=True)
class Target:
    """The ratio to a peer that ours has to reach, and the peer's release that it was set beside."""

    ratio: float
    release: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison of medians: the less the better.

    Attributes:
        peers: Figures by peer; the target is a ratio to the first one. None: the peer is not
            installed, or failed.
    """

    name: str
    ours: float
    peers: Mapping[str, float | None] = field(default_factory=dict)
    target: Target | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is reached; None without a target or the peer's figure."""
        first = next(iter(self.peers.values()), None)
        if self.target is None or not first:
            return None
        return self.ours / first <= self.target.ratio

    @property
    def line(self) -> tuple[str, str, str, str]:
        """The cells of a table: name, ours, the peers with the ratios, and the target."""
        peers = ", ".join(
            f"{peer} {value:,.3f} ({self.ours / value:.2f}x)" if value else f"{peer} -"
            for peer, value in self.peers.items()
        )
        goal = ""
        if self.target:
            met = {None: "not measured", True: "met", False: "missed"}[self.met]
            goal = f"{self.target.ratio:.2f}x of {self.target.release}: {met}"
        return self.name, f"{self.ours:,.3f}", peers, goal


def benchmark_parser(
    name: str,
    description: str | None,
    *,
    rounds: int = 3,
    cases: Iterable[str] = (),
    peers: bool = False,
) -> argparse.ArgumentParser:
    """A parser of the flags that every benchmark has.

    Benchmarks with ``cases`` have ``--only`` too, benchmarks with ``peers`` in an environment of
    their own ``--peers-python``.
    """
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks.{name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(benchmark=name)
    parser.add_argument(
        "--rounds",
        type=int,
        default=rounds,
        help="turns of each contender that count, after one that does not if there are several"
        " (default %(default)s)",
    )
    parser.add_argument(
        "--files-scale", type=float, default=1.0, help="multiple of the number of files, as 0.01"
    )
    parser.add_argument("--directory", help="folder for the files (default: a temporary one)")
    parser.add_argument("--json", action="store_true", help="one JSON document on stdout")
    if cases:
        parser.add_argument(
            "--only", choices=[*cases], action="append", help="a case; may be repeated"
        )
    if peers:
        # Not resolved: a Python of a virtual environment is a link to one without its packages.
        parser.add_argument(
            "--peers-python",
            type=os.path.abspath,
            default=sys.executable,
            help="the Python that has the peers' packages (default: this one)",
        )
    return parser


def run(
    parser: argparse.ArgumentParser,
    measure: Callable[[argparse.Namespace, Path], Iterable[Figure]],
) -> None:
    """Measure in a new folder, and print a line for each case, or the document alone."""
    flags = parser.parse_args()
    heads = (flags.benchmark, "ours", "peers (ratio)", "target")
    with claim_stdout() as stdout:
        say(f"load at the start: {os.getloadavg()[0]:.1f}")
        with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as folder:
            figures = [*measure(flags, Path(folder))]
        say(f"load at the end: {os.getloadavg()[0]:.1f}\n")
        lines = table(heads, (figure.line for figure in figures))
        if flags.json:
            say(lines)
            lines = document(flags.benchmark, figures)
        print(lines, file=stdout)


def claim_stdout() -> TextIO:
    """Take stdout for the caller: all else that is written to it goes to stderr from now on.

    The file descriptor changes too, so this holds for libraries in C and for child processes.
    """
    sys.stdout.flush()
    stdout = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return stdout


def document(benchmark: str, figures: Iterable[Figure]) -> str:
    cases = {
        figure.name: {
            "ours": figure.ours,
            "peers": dict(figure.peers),
            "target": figure.target and figure.target.ratio,
            "met": figure.met,
        }
        for figure in figures
    }
    return json.dumps({"benchmark": benchmark, "cases": cases})


def alternate(
    contenders: Mapping[str, Contender], rounds: int, *, before: Callable[[], None] = os.sync
) -> dict[str, dict[str, float]]:
    """Let the contenders take turns; the medians, by contender and by what it measured.

    ``before`` is called before every turn, outside of the time: by default it waits for pending
    writes to the disk. A contender that returns None cannot do the work: it gets no more turns, and
    no medians.
    """
    measured: dict[str, list[Measured]] = {name: [] for name in contenders}
    able = dict(contenders)
    for turn in numbered(rounds):
        for name, contender in [*able.items()]:
            before()
            figures = contender()
            if figures is None:
                del able[name], measured[name][:]
                continue
            listed = ", ".join(f"{what} {value:,.3f}" for what, value in figures.items())
            say(f"  round {turn} of {rounds}: {name}: {listed}")
            if turn:
                measured[name].append(figures)
    return {
        name: {what: median(each[what] for each in turns) for what in turns[0]} if turns else {}
        for name, turns in measured.items()
    }


def numbered(rounds: int) -> range:
    """The numbers of the rounds: of several, one more comes first, 0, which does not count."""
    return range(0 if rounds > 1 else 1, rounds + 1)


def apart(function: Callable[..., Result], *arguments: Any) -> Result:
    """Call a function in a new process, so that no function uses memory that another has left."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        return executor.submit(function, *arguments).result()


def run_command(command: Sequence[str], **options: Any) -> dict[str, float]:
    """Run a command: its seconds, and CPU seconds and peak bytes of it and the processes it ran.

    Raises:
        RuntimeError: It failed; with the end of what it wrote to stderr.
    """
    start = perf_counter()
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        **options,
    ) as process:
        assert process.stderr is not None
        errors = process.stderr.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        name = " ".join(command[:4])
        raise RuntimeError(f"{name}: {errors[-2_000:].decode(errors='replace')}")
    cpu_seconds, peak_bytes = usage.ru_utime + usage.ru_stime, 1024.0 * usage.ru_maxrss
    return {SECONDS: seconds, CPU: cpu_seconds, PEAK: peak_bytes}


def ask_program(python: str, module: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Ask a module that calls `answer`, run by another Python; see there.

    Raises:
        RuntimeError: It failed; with the end of what it wrote to stderr.
    """
    done = subprocess.run(
        [python, "-m", module],
        cwd=ROOT,
        input=json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{request.get('peer', python)}: {done.stderr[-2_000:]}")
    return dict(json.loads(done.stdout))


def answer(
    turn: Callable[[Mapping[str, Any]], Mapping[str, Any]], packages: Mapping[str, str]
) -> None:
    """Answer a request, JSON on stdin, by JSON on stdout: the figures of a turn.

    An empty request asks for the versions of the packages that this Python has.
    """
    with claim_stdout() as stdout:
        request = json.load(sys.stdin)
        print(json.dumps(turn(request) if request else installed(packages)), file=stdout)


def installed(packages: Mapping[str, str]) -> dict[str, str]:
    """The version of each of some packages that this Python has, by a name for each."""
    versions = {}
    for name, package in packages.items():
        with suppress(PackageNotFoundError):
            versions[name] = version(package)
    return versions


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of text, the second right-aligned, the others left-aligned."""
    lines = [tuple(heads), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            text.rjust(width) if place == 1 else text.ljust(width)
            for place, (text, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def say(text: str) -> None:
    """Write a line for people to stderr."""
    print(text, file=sys.stderr, flush=True)
