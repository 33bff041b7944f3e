"""Copies: what they cost Larder, and what they cost s5cmd, rclone, aws s3 sync and boto3.

::

    python -m benchmarks.copy [--peers DIRECTORY] [--runs 3] [--only small] [--files-scale 1]
        [--latency-seconds 0.05] [--directory DIR] [--json]

Everybody is run as the command that its users type, with its default settings (rclone with 32
transfers, because its default is 4; boto3 with 32 threads), in turns, into an empty place. A peer
that fails, or does not copy every byte, is null. Seconds include the start of the program. The
servers, ``rclone serve s3``, share the machine's cores with the client, and are what limits small
objects: the CPU seconds of the client are the fairer figure. Targets are for rclone 1.75.2.

Cases: small (4,000 x 110 kB) and large (8 x 128 MB) objects, between two servers, on one server,
from a bucket to a directory, from a directory to a bucket; small ones over TLS, which is how clouds
are reached, between two servers and to a directory; small ones with a delay of every answer;
a listing of 100,000 keys; another run where nothing has changed, compared with the listings alone.
s5cmd and aws have one server per command: between two servers, they go through memory.

The peers are in an environment of their own: see benchmarks/requirements-copy.txt.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.copying.delay import delayed
from benchmarks.copying.programs import PEERS, Place, Took, copy_with, list_with
from benchmarks.harness import arguments_parser, document, say, settle, table
from tests.support.certificates import local_certificate
from tests.support.servers import S3Server, rclone_s3

SMALL, LARGE, LISTED = 4_000, 8, 100_000
SMALL_BYTES, LARGE_BYTES = 110_000, 128_000_000
MEMORY_BYTES = 300e6

CASES = ["small", "tls", "large", "latency", "list", "rerun"]

WALL, CPU, MEMORY = "wall seconds", "client CPU seconds", "peak bytes"


@dataclass(frozen=True, slots=True)
class Figure:
    """One comparison: see `benchmarks.harness.Compared`."""

    name: str
    ours: float
    peers: dict[str, float | None]
    target: float | None = None
    limit: float | None = None

    @property
    def met(self) -> bool | None:
        """Whether the target is met: of every peer that has a figure, or of the limit."""
        if self.limit is not None:
            return self.ours <= self.limit
        found = [peer for peer in self.peers.values() if peer is not None]
        if self.target is None or not found:
            return None
        return all(self.ours <= self.target * peer for peer in found)


@dataclass(frozen=True, slots=True)
class Case:
    """What is copied, and how much of whose time it may take.

    Attributes:
        name: What is copied.
        run: Copies with a program, by its name.
        wall: How many times the wall seconds of each of ``compared`` ours may be.
        cpu: The same for CPU seconds.
        compared: The peers that the targets are of; none: the best of all.
    """

    name: str
    run: Callable[[str], Took | None]
    wall: float | None = None
    cpu: float | None = None
    compared: tuple[str, ...] = ()


class Lab:
    """Two servers, and objects on disk that one of them serves."""

    def __init__(self, folder: Path, programs: Path | None, scale: float) -> None:
        self.programs = programs
        self.folder = folder
        self.scale = scale
        self._stack = ExitStack()

    def __enter__(self) -> Lab:
        self.one = self._stack.enter_context(rclone_s3(self.folder / "one"))
        self.two = self._stack.enter_context(rclone_s3(self.folder / "two"))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def count(self, full: int) -> int:
        """How many objects there are instead of so many."""
        return max(1, round(full * self.scale))

    def objects(self, name: str, count: int, size_bytes: int) -> Place:
        """A bucket of the first server with so many objects."""
        self.one.create_bucket(name)  # the server remembers which ones there are
        folder = self.folder / "one" / name
        for number in range(self.count(count)):
            path = folder / f"{number % 40:03}" / f"{number:06}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(os.urandom(size_bytes) if size_bytes else b"")
        return Place(name, self.one, folder)

    def directory(self, place: Place) -> Place:
        """The same objects as files."""
        return Place(str(place.folder), None, place.folder)

    def copying(self, source: Place, to: str) -> Callable[[str], Took | None]:
        """Copies into a new place: ``one``, ``two`` or ``directory``."""

        def run(name: str) -> Took | None:
            with self._empty(to) as target:
                settle()
                took = copy_with(name, self.programs, source, target)
                if took and not _same(source.folder, target.folder):
                    say(f"    {name}: not every byte was copied")
                    return None
                return took

        return run

    @contextmanager
    def _empty(self, to: str) -> Iterator[Place]:
        if to == "directory":
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            place = Place(str(folder), None, folder)
        else:
            server: S3Server = getattr(self, to)
            name = Path(tempfile.mktemp(prefix="to")).name.replace("_", "0").lower()
            server.create_bucket(name)
            folder = self.folder / to / name
            place = Place(name, server, folder)
        try:
            yield place
        finally:
            _empty_files(folder)

    @contextmanager
    def over_tls(self) -> Iterator[None]:
        """Both servers behind TLS."""
        plain, certificate = (self.one, self.two), local_certificate(self.folder)
        with ExitStack() as stack:
            self.one, self.two = (
                stack.enter_context(rclone_s3(self.folder / name, tls=certificate))
                for name in ("one", "two")
            )
            try:
                yield
            finally:
                self.one, self.two = plain

    @contextmanager
    def far_away(self, seconds: float) -> Iterator[None]:
        """Both servers behind a delay."""
        here = self.one, self.two
        with ExitStack() as stack:
            self.one, self.two = (stack.enter_context(delayed(each, seconds)) for each in here)
            try:
                yield
            finally:
                self.one, self.two = here


def _empty_files(folder: Path) -> None:
    """Free the space of files without removing them.

    For minutes after files were removed, ext4 passes over their inodes one by one whenever it makes
    a file (``recently_deleted`` in its ialloc.c): a quarter of the time of whoever is next.
    """
    for path in folder.rglob("*"):
        if path.is_file():
            os.truncate(path, 0)


def _same(source: Path, target: Path) -> bool:
    """Whether every file of the source is in the target, byte by byte."""
    for path in source.rglob("*"):
        if path.is_file():
            there = target / path.relative_to(source)
            # In pieces: the peak of a program begins with that of the process that starts it.
            if not there.is_file() or not filecmp.cmp(path, there, shallow=False):
                return False
    return True


def main(argv: Sequence[str] | None = None) -> int:
    options = _options(argv)
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=options.directory, prefix="larder-copy-") as folder:
        programs = options.peers and Path(options.peers).absolute()
        with Lab(Path(folder), programs, options.files_scale) as lab:
            for case in _cases(lab, options):
                figures += _figures(case, _measured(case, options))
                say(_lines(figures[-3:]))
            if "rerun" in options.only:
                figures += _rerun(lab, options)
    if options.json:
        print(document("copy", figures))
    else:
        print(_lines(figures))
    return 0


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = arguments_parser(__doc__ or "")
    parser.set_defaults(runs=3)
    parser.add_argument("--peers", help="directory with their programs (default: the PATH)")
    parser.add_argument("--latency-seconds", type=float, default=0.05)
    parser.add_argument(
        "--only",
        action="append",
        choices=CASES,
        help="only these cases (default: all)",
    )
    options = parser.parse_args(argv)
    options.only = options.only or CASES
    return options


def _cases(lab: Lab, options: argparse.Namespace) -> Iterator[Case]:
    """The cases; each is measured before the next one is asked for."""
    two, rclone = ("s5cmd", "rclone"), ("rclone",)
    if "small" in options.only:
        small = lab.objects("small", SMALL, SMALL_BYTES)
        files = lab.directory(small)
        name = f"{lab.count(SMALL):,} x {SMALL_BYTES // 1000} kB"
        yield Case(f"{name}, two servers", lab.copying(small, "two"), 1.0, None, two)
        yield Case(f"{name}, one server", lab.copying(small, "one"), 1.0, None, ("s5cmd",))
        yield Case(f"{name}, to a directory", lab.copying(small, "directory"), 1.1, 1.1, rclone)
        yield Case(f"{name}, from a directory", lab.copying(files, "two"), 1.0, None, two)
    if "tls" in options.only:
        small = lab.objects("small", SMALL, SMALL_BYTES)
        name = f"{lab.count(SMALL):,} x {SMALL_BYTES // 1000} kB over TLS"
        with lab.over_tls():
            secure = replace(small, server=lab.one)
            yield Case(f"{name}, two servers", lab.copying(secure, "two"), 1.0, None, two)
            to_files = lab.copying(secure, "directory")
            yield Case(f"{name}, to a directory", to_files, 1.1, None, rclone)
    if "large" in options.only:
        large = lab.objects("large", LARGE, LARGE_BYTES)
        files = lab.directory(large)
        name = f"{lab.count(LARGE)} x {LARGE_BYTES // 1_000_000} MB"
        yield Case(f"{name}, two servers", lab.copying(large, "two"), 1.1, None, rclone)
        yield Case(f"{name}, one server", lab.copying(large, "one"), 1.1, None, rclone)
        yield Case(f"{name}, to a directory", lab.copying(large, "directory"), 1.1, None, rclone)
        yield Case(f"{name}, from a directory", lab.copying(files, "two"), 1.1, None, rclone)
        shutil.rmtree(large.folder)
    if "latency" in options.only:
        small = lab.objects("small", SMALL, SMALL_BYTES)
        milliseconds = round(options.latency_seconds * 1000)
        name = f"{lab.count(SMALL):,} x {SMALL_BYTES // 1000} kB, {milliseconds} ms away"
        with lab.far_away(options.latency_seconds):
            far = replace(small, server=lab.one)
            yield Case(f"{name}, two servers", lab.copying(far, "two"), 1.0, None, ("s5cmd",))
    if "list" in options.only:
        listed = lab.objects("listed", LISTED, 0)

        def run(name: str) -> Took | None:
            return list_with(name, lab.programs, listed)

        yield Case(f"list {lab.count(LISTED):,} keys", run, 1.0, None, ("s5cmd",))


def _measured(case: Case, options: argparse.Namespace) -> dict[str, list[Took | None]]:
    """What everybody took, in turns."""
    names = ("ours", *PEERS)
    measured: dict[str, list[Took | None]] = {name: [] for name in names}
    for turn in range(1, options.runs + 1):
        for name in names:
            if measured[name] and measured[name][-1] is None:
                continue  # it cannot do this
            took = case.run(name)
            if took is None and name == "ours":
                raise SystemExit(f"{case.name}: Larder itself failed")
            measured[name].append(took)
            text = f"{took.wall:.2f} s, CPU {took.cpu:.2f} s" if took else "--"
            say(f"  {case.name}, round {turn} of {options.runs}: {name} {text}")
    return measured


def _figures(case: Case, measured: dict[str, list[Took | None]]) -> list[Figure]:
    def medians(field: str) -> dict[str, float | None]:
        return {
            name: None if None in took else round(median(getattr(t, field) for t in took), 3)
            for name, took in measured.items()
        }

    made = []
    for what, field, target in ((WALL, "wall", case.wall), (CPU, "cpu", case.cpu)):
        values: dict[str, Any] = medians(field)
        ours = values.pop("ours")
        peers = {name: values[name] for name in case.compared} if case.compared else values
        others = {name: value for name, value in values.items() if name not in peers}
        made.append(Figure(f"{case.name}: {what}", ours, peers, target))
        if others:
            made.append(Figure(f"{case.name}: {what}, others", ours, others))
    memory: dict[str, Any] = medians("memory")
    made.append(Figure(f"{case.name}: {MEMORY}", memory.pop("ours"), memory, limit=MEMORY_BYTES))
    return made


def _rerun(lab: Lab, options: argparse.Namespace) -> list[Figure]:
    """A copy that changes nothing, and the two listings alone."""
    source = lab.objects("listed", LISTED, 0)
    lab.two.create_bucket("again")
    target = Place("again", lab.two, lab.folder / "two/again")
    say("  copying once")
    if copy_with("ours", None, source, target) is None:
        raise SystemExit("the first copy failed")
    walls: dict[str, list[float]] = {"ours": [], "listings": []}
    for _ in range(options.runs):
        again = copy_with("ours", None, source, target)
        alone = [list_with("ours", None, place) for place in (source, target)]
        assert again, "it has worked before"
        walls["ours"].append(again.wall)
        walls["listings"].append(sum(each.wall for each in alone if each))
        told = f"{again.wall:.2f} s, CPU {again.cpu:.2f} s"
        say(f"  again {told}; listings {walls['listings'][-1]:.2f} s")
    ours, listings = (median(walls[name]) for name in ("ours", "listings"))
    name = f"another copy of {lab.count(LISTED):,} objects: {WALL}"
    return [Figure(name, round(ours, 3), {"listings": round(listings, 3)}, 1.2)]


def _lines(figures: Sequence[Figure]) -> str:
    rows = []
    for figure in figures:
        others = ", ".join(
            f"{name} {value:,.2f} ({figure.ours / value:.2f}x)" if value else f"{name} --"
            for name, value in figure.peers.items()
        )
        met = {None: "", True: "met", False: "missed"}[figure.met]
        goal = f"{figure.target}x" if figure.target else ""
        rows.append((figure.name, f"{figure.ours:,.2f}", others, goal, met))
    return table(("case", "ours", "peers", "target", ""), rows)


if __name__ == "__main__":
    sys.exit(main())
