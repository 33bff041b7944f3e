"""Copies and listings: Larder, rclone and s5cmd, and if asked for aws s3 sync and boto3.

Everybody is run as the command that its users type, with its default settings (rclone with 32
transfers, because its default is 4; boto3 with 32 threads), in turns, into an empty place. A peer
that fails, or does not copy every byte, is null. Seconds include the start of the program. The
servers, ``rclone serve s3``, share the machine's cores with the client, and are what limits small
objects: the CPU seconds of the client are the fairer figure. A source on a server is listed first:
the server computes MD5s for a listing, and whoever came first would wait. In "one server" it reads
folders again every ten seconds, and may compute the MD5s within any program's turn.

- small, large: 4,000 x 0.11 MB and 8 x 128 MB, between two servers, on one server, from a bucket to
  a directory, from a directory to a bucket.
- tls: the small ones to a directory over TLS, which is how clouds are reached.
- latency: the small ones between two servers that delay every answer.
- list: a listing of 20,000 keys.
- rerun: another copy of these where nothing has changed, beside the two listings alone.

Left out unless asked for: ``--peer aws --peer boto3``, which take longer than all others together,
and ``--listed 100000``. s5cmd and aws have one server per command: between two servers, they go
through memory. The peers are in an environment of their own: see benchmarks/requirements-copy.txt.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks.copying.delay import delayed
from benchmarks.copying.programs import OURS, PEERS, Place, copy_with, list_with
from benchmarks.harness import (
    CPU,
    KEPT_SECONDS,
    PEAK,
    SECONDS,
    Figure,
    Measured,
    Target,
    alternate,
    benchmark_parser,
    run,
    say,
)
from tests.support.certificates import local_certificate
from tests.support.servers import S3Server, rclone_s3

SMALL, LARGE = 4_000, 8
SMALL_BYTES, LARGE_BYTES = 110_000, 128_000_000
PIECE_BYTES = 1 << 20
DEFAULT_PEERS = PEERS[:2]

RCLONE = Target(1.1, "rclone 1.75.2")


@dataclass(frozen=True, slots=True)
class Case:
    """Objects that a program copies or lists; ``copy`` takes its name."""

    name: str
    copy: Callable[[str], Measured | None]
    targets: Mapping[str, Target] = field(default_factory=dict)


class Lab:
    """Two servers, and objects on disk that the first one serves and is only read from.

    Copies go below the folders of ``one``, ``two`` and ``files``.
    """

    def __init__(
        self, flags: argparse.Namespace, folder: Path, one: S3Server, two: S3Server
    ) -> None:
        self.programs = flags.peers and Path(flags.peers).absolute()
        self.folder = folder
        self.latency_seconds: float = flags.latency_seconds
        self.listed: int = flags.listed
        self.scale: float = flags.files_scale
        self.one = Place("", one, folder / "one")
        self.two = Place("", two, folder / "two")
        self.files = Place("", None, folder / "files")
        self._numbers = count()

    def objects(self, full: int, size_bytes: int) -> tuple[str, Place]:
        """The name of a body of objects, and a bucket of the first server that has it."""
        files = max(1, round(full * self.scale))
        name = f"{files:,} x {size_bytes / 1e6:g} MB" if size_bytes else f"{files:,} keys"
        bucket = f"from-{files}-{size_bytes}"
        folder = self.one.folder / bucket
        if not folder.exists():
            assert self.one.server is not None
            self.one.server.create_bucket(bucket)  # the server remembers which ones there are
            for number in range(files):
                path = folder / f"{number % 40:03}" / f"{number:06}.jpg"
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as file:
                    # In pieces: a program's peak begins with that of the process that starts it.
                    for start in range(0, size_bytes, PIECE_BYTES):
                        file.write(os.urandom(min(PIECE_BYTES, size_bytes - start)))
        return name, Place(bucket, self.one.server, folder)

    def copying(self, source: Place, to: Place) -> Callable[[str], Measured | None]:
        """Copies into a new bucket or directory."""

        def copy(name: str) -> Measured | None:
            with self._empty(to) as target:
                if source.server:
                    source.server.compute_etags(source.path)
                took = copy_with(name, self.programs, source, target)
                if took and not _same(source.folder, target.folder):
                    assert name != OURS, "not every byte was copied"
                    say(f"    {name}: not every byte was copied")
                    return None
                return took

        return copy

    @contextmanager
    def _empty(self, to: Place) -> Iterator[Place]:
        name = f"to-{next(self._numbers)}"
        folder = to.folder / name
        if to.server:
            to.server.create_bucket(name)
        else:
            folder.mkdir(parents=True)
        try:
            yield Place(name if to.server else str(folder), to.server, folder)
        finally:
            _empty_files(folder)


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
            copied = target / path.relative_to(source)
            if not copied.is_file() or not filecmp.cmp(path, copied, shallow=False):
                return False
    return True


def every_way(
    lab: Lab, full: int, size_bytes: int, down: Mapping[str, Target], up: Mapping[str, Target]
) -> Iterator[Case]:
    """Copies of one body between servers and directories; targets of those to and from one."""
    name, source = lab.objects(full, size_bytes)
    files = Place(str(source.folder), None, source.folder)
    yield Case(f"{name}, two servers", lab.copying(source, lab.two))
    # A server that is also written to has to read its folders again soon: the bug in rclone_s3.
    with rclone_s3(lab.one.folder) as server:
        copy = lab.copying(replace(source, server=server), replace(lab.one, server=server))
        yield Case(f"{name}, one server", copy)
    yield Case(f"{name}, to a directory", lab.copying(source, lab.files), down)
    yield Case(f"{name}, from a directory", lab.copying(files, lab.two), up)


def small(lab: Lab) -> Iterator[Case]:
    return every_way(lab, SMALL, SMALL_BYTES, {SECONDS: RCLONE, CPU: RCLONE}, {})


def large(lab: Lab) -> Iterator[Case]:
    yield from every_way(lab, LARGE, LARGE_BYTES, {SECONDS: RCLONE}, {SECONDS: RCLONE})
    shutil.rmtree(lab.objects(LARGE, LARGE_BYTES)[1].folder)


def tls(lab: Lab) -> Iterator[Case]:
    name, source = lab.objects(SMALL, SMALL_BYTES)
    certificate = local_certificate(lab.folder)
    with rclone_s3(lab.one.folder, tls=certificate, reread_seconds=KEPT_SECONDS) as secure:
        copy = lab.copying(replace(source, server=secure), lab.files)
        yield Case(f"{name} over TLS, to a directory", copy, {SECONDS: RCLONE})


def latency(lab: Lab) -> Iterator[Case]:
    name, source = lab.objects(SMALL, SMALL_BYTES)
    name += f", {lab.latency_seconds * 1000:.0f} ms away, two servers"
    assert lab.one.server is not None
    assert lab.two.server is not None
    with (
        delayed(lab.one.server, lab.latency_seconds) as one,
        delayed(lab.two.server, lab.latency_seconds) as two,
    ):
        yield Case(name, lab.copying(replace(source, server=one), replace(lab.two, server=two)))


def listing(lab: Lab) -> Iterator[Case]:
    name, source = lab.objects(lab.listed, 0)
    assert source.server is not None
    source.server.compute_etags(source.path)
    yield Case(f"list {name}", lambda program: list_with(program, lab.programs, source))


CASES: Mapping[str, Callable[[Lab], Iterator[Case]]] = {
    "small": small,
    "tls": tls,
    "large": large,
    "latency": latency,
    "list": listing,
}


def figures(case: Case, peers: tuple[str, ...], rounds: int) -> Iterator[Figure]:
    say(case.name)
    medians = alternate({name: partial(case.copy, name) for name in (OURS, *peers)}, rounds)
    for what in (SECONDS, CPU, PEAK):
        beside = {peer: medians[peer].get(what) for peer in peers}
        name = f"{case.name}: {what}"
        yield Figure(name, medians[OURS][what], beside, case.targets.get(what))


def rerun(lab: Lab, rounds: int) -> Figure:
    """A copy that changes nothing, and the two listings alone."""
    name, source = lab.objects(lab.listed, 0)
    target = Place("again", lab.two.server, lab.two.folder / "again")
    assert lab.two.server is not None
    lab.two.server.create_bucket(target.path)
    copy = partial(copy_with, OURS, None, source, target)
    copy()

    def listings() -> Measured:
        found = [list_with(OURS, None, place) for place in (source, target)]
        return {SECONDS: sum(each[SECONDS] for each in found if each)}

    medians = alternate({OURS: copy, "both listings": listings}, rounds)
    beside = {"both listings": medians["both listings"][SECONDS]}
    return Figure(f"another copy of {name}: {SECONDS}", medians[OURS][SECONDS], beside)


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    peers = DEFAULT_PEERS + tuple(flags.peer)
    only = flags.only or [*CASES, "rerun"]
    with (
        rclone_s3(folder / "one", reread_seconds=KEPT_SECONDS) as one,
        rclone_s3(folder / "two") as two,
    ):
        lab = Lab(flags, folder, one, two)
        for name in CASES:
            for case in CASES[name](lab) if name in only else ():
                yield from figures(case, peers, flags.rounds)
        if "rerun" in only:
            yield rerun(lab, flags.rounds)


PARSER = benchmark_parser("copy", __doc__, cases=[*CASES, "rerun"])
PARSER.add_argument("--peers", help="directory with their programs (default: the PATH)")
PARSER.add_argument(
    "--peer", choices=PEERS[2:], action="append", default=[], help="a slow peer; may be repeated"
)
PARSER.add_argument("--listed", type=int, default=20_000, help="keys of a listing (default 20,000)")
PARSER.add_argument("--latency-seconds", type=float, default=0.05, help="(default %(default)s)")

if __name__ == "__main__":
    run(PARSER, measure)
