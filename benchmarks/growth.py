"""A dataset that grows: what a change costs Larder, and what it costs those who pack everything.

Two bodies, both in class folders of two splits:

- real files: 10,000 JPEGs on disk of about 110 kB, lognormal as ImageNet's, in shards of 75 MB:
  about 15 of them, so that even few random samples touch most, unlike in a large dataset.
- invented samples: 100,000 of 1 to 2 kB that no disk holds, their bytes made up when they are
  read, in shards of 400 kB: about 400, as a large dataset has in shards of 150 MB.

Each body is built once, then changed from there: nothing; 1 percent added, anywhere; 0.1 percent
removed at random, with both policies; 0.01 percent changed. In the order of the keys, and shuffled
with a cache of the encoded records; real files then also with a mirror, which is the default of
dataset files. The labels are those of the folders. A file a day for thirty days: real files, all
days in one process that forgets what it read.

Left out unless asked for: ``--only large``, 5,000,000 samples of about 150 bytes, and 1 percent
added, for their peak memory; ``--only invented --files-scale 10``, a million invented samples.

What everybody does, taking turns in the same run, each turn in a process of its own whose start and
imports do not count, all synced to the disk within the time:

- ours: lists the source, finds out what changed, plans, and writes what is new. Its bytes are
  those that its stores move; manifests are counted apart, and read in place after their digest was
  checked once.
- webdataset (ShardWriter) and MosaicML Streaming (MDSWriter): write everything again, without
  hashes or indexes of the samples.
- DVC: ``dvc add`` of the folder of files, then again. It finds out what changed by time and inode,
  and copies by file into its cache; it makes no shards. Invented samples are not files: null.
- Lance: one dataset; rows are marked as deleted, and appended at the end. It is told what changed.

What a peer wrote are the files that are new in its folder (DVC's state databases apart), what it
read are the bytes of its process's calls. The peers need the packages of
benchmarks/requirements-growth.txt, best in an environment of their own; those that are not there
are null in the document, and are named on stderr. In the first variant of each body only.

For a step, the first peer is ``first build``, ours; ``arithmetic`` is what the step has to write:
see `benchmarks.growing.report.arithmetic_bytes`.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.growing.body import ADDED, FIRST, Body, Step
from benchmarks.growing.contenders import Ours, contenders, installed_peers
from benchmarks.growing.daily import run_daily
from benchmarks.growing.files import make_files
from benchmarks.growing.names import Names, Picks, pick
from benchmarks.growing.report import daily_figures, figures, touched
from benchmarks.growing.rounds import run_variant
from benchmarks.harness import Figure, benchmark_parser, run, say

REAL_FILES, INVENTED_SAMPLES, LARGE_SAMPLES = 10_000, 100_000, 5_000_000
FILE_BYTES, SAMPLE_BYTES, TINY_BYTES = 110_000, 1_500, 150
SHARD_BYTES, SMALL_SHARD_BYTES, LARGE_SHARD_BYTES = 75_000_000, 400_000, 50_000_000
SMALLEST_SHARD_BYTES = 100_000

CACHED = {"shards": {"shuffle_seed": 7}, "cache": {"records": "encoded"}}
BODIES = ("real", "daily", "invented")


@dataclass(frozen=True, slots=True)
class Plan:
    """What is run: ``scale`` times the samples, in shards smaller by as much."""

    folder: Path
    scale: float
    rounds: int
    python: str
    peers: tuple[str, ...]

    def real(self) -> Body:
        """Real files, which are made here."""
        count = self._count(REAL_FILES)
        folder = self.folder / "real"
        body = Body(
            name=f"{count:,} real files",
            names=Names(count, "JPEG"),
            mean_bytes=FILE_BYTES,
            shard_bytes=self._shard_bytes(SHARD_BYTES),
            folder=str(folder),
        )
        if not folder.exists():
            say(f"making {body.name}")
            size_bytes = make_files(Path(body.files), body.names)
            say(f"{body.name}: {size_bytes:,} bytes, {size_bytes / count:,.0f} each")
        return body

    def invented(self) -> Body:
        """Samples that no disk holds."""
        count = self._count(INVENTED_SAMPLES)
        return Body(
            name=f"{count:,} invented samples",
            names=Names(count, "bin"),
            mean_bytes=SAMPLE_BYTES,
            shard_bytes=self._shard_bytes(SMALL_SHARD_BYTES),
        )

    def large(self) -> Body:
        """Many tiny samples that no disk holds."""
        count = self._count(LARGE_SAMPLES)
        return Body(
            name=f"{count:,} tiny samples",
            names=Names(count, "bin"),
            mean_bytes=TINY_BYTES,
            shard_bytes=self._shard_bytes(LARGE_SHARD_BYTES),
        )

    def _count(self, samples: int) -> int:
        return max(100, round(samples * self.scale))

    def _shard_bytes(self, size_bytes: int) -> int:
        """Smaller shards for fewer samples: as many of them, unless they were too small."""
        return max(SMALLEST_SHARD_BYTES, round(size_bytes * min(1.0, self.scale)))


def run_body(body: Body, plan: Plan) -> Iterator[Figure]:
    """Both variants of one body, the peers beside the first."""
    variants: Mapping[str, Mapping[str, Any]] = {
        "in key order": {},
        "shuffled, cached": {**CACHED, "mirror": body.real},
    }
    for number, (variant, fields) in enumerate(variants.items()):
        place = plan.folder / f"variant-{number}"
        ours, others = contenders(body, fields, plan.python, () if number else plan.peers, place)
        result = run_variant(variant, body, ours, others, plan.rounds)
        say("\n".join(touched(result)))
        yield from figures(result, with_peers=number == 0)


def run_large(body: Body, plan: Plan) -> Iterator[Figure]:
    """A first build and one growth, for their memory."""
    ours = Ours(body, {}, plan.folder / "large")
    step = Step(ADDED, pick(body.count, added=max(1, body.count // 100)))
    ours.folder.clear()
    first = None
    for name, picks in ((FIRST, Picks()), (step.name, step.picks)):
        os.sync()
        say(f"{body.name}: {name}")
        took = ours.turn(picks, {}, first=first is None)
        ours.folder.keep()
        yield Figure(f"{body.name}: {name}: peak bytes of memory", took.peak_bytes)
        beside: dict[str, float | None] = {} if first is None else {FIRST: first.seconds}
        yield Figure(f"{body.name}: {name}: seconds", took.seconds, beside)
        first = took
    ours.folder.drop()


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    peers = tuple(installed_peers(flags.peers_python))
    plan = Plan(folder, flags.files_scale, flags.rounds, flags.peers_python, peers)
    for name in flags.only or BODIES:
        if name == "real":
            yield from run_body(plan.real(), plan)
        elif name == "daily":
            yield from daily_figures(run_daily(plan.real(), flags.days, folder / "daily"))
        elif name == "invented":
            yield from run_body(plan.invented(), plan)
        else:
            yield from run_large(plan.large(), plan)


PARSER = benchmark_parser("growth", __doc__, rounds=1, cases=[*BODIES, "large"], peers=True)
PARSER.add_argument("--days", type=int, default=30, help="days of a file each (default 30)")

if __name__ == "__main__":
    run(PARSER, measure)
