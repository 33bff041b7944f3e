"""Packing files into tar shards: Larder, GNU tar and webdataset's ShardWriter.

::

    python -m benchmarks.shards [--runs 5] [--files-scale 1] [--directory DIR] [--json]

Two bodies of files: 10,000 of about 110 KB (lognormal, as ImageNet's) and 50,000 of about 1 KB.
Everybody reads the same files in the same order from the page cache and writes to the same disk,
taking turns, each turn in a process of its own whose start does not count. Everybody's output is
synced to the disk within the time (Larder's store does it by itself, for the others it is done
here), and the time without the syncs is compared beside it, as disks vary more than programs.

What each does:

- ours: reads the sample order from Parquet, packs shards of 150 MB with labels as ``.cls``, checks
  each file's size and etag against it, computes the crc32c of every part and the sha256 of every
  shard, publishes each atomically, and writes the sample index as Parquet. Images are not decoded.
- GNU tar: one archive, no labels, no hashes, no index.
- webdataset: ShardWriter, shards of 150 MB, labels as ``.cls``, no hashes, no index.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import google_crc32c
import pyarrow as pa
import webdataset

from benchmarks.harness import (
    Case,
    Stopwatch,
    alternate,
    apart,
    arguments,
    document,
    say,
    settle,
    table,
)
from larder.manifest.files import ManifestWriter, read_manifest
from larder.manifest.schemas import SAMPLE_ORDER, SAMPLES
from larder.shards import tar
from larder.shards.build import build_shard
from larder.shards.formats import shard_format as format_of
from larder.shards.index import numbered, sample_rows
from larder.shards.model import read_samples
from larder.shards.output import HashedOutput
from larder.shards.packing import plan_shards
from larder.shards.readahead import open_reads, suited_concurrency
from larder.shards.sizes import split_sizes
from larder.store import Store, open_store
from larder.store.local import LocalStore
from larder.store.local_write import LocalWriter

SHARD_BYTES = 150_000_000
FOLDERS = 100
GNU_TAR = "GNU tar"
WEBDATASET = "webdataset ShardWriter"


@dataclass(frozen=True, slots=True)
class Body:
    """Files to pack: ``name``, how many, and their mean size in bytes."""

    name: str
    files: int
    mean_bytes: int


BODIES = (Body("110 KB files", 10_000, 110_000), Body("1 KB files", 50_000, 1_000))


def make_files(body: Body, count: int, folder: Path) -> None:
    """Write the files: class folders, lognormal sizes, bytes that do not compress."""
    rng = random.Random(7)
    sigma = 0.5
    scale = body.mean_bytes / 2.718281828 ** (sigma**2 / 2)
    for number in range(count):
        parent = folder / f"n{number * FOLDERS // count:08d}"
        parent.mkdir(parents=True, exist_ok=True)
        size = max(1, round(rng.lognormvariate(0, sigma) * scale))
        (parent / f"{parent.name}_{number}.jpg").write_bytes(rng.randbytes(size))


def order_samples(source: Store, path: Path) -> None:
    """The sample order of the files, as the plan stage leaves it."""
    rows = (
        {
            "split": "train",
            "key": info.key.removesuffix(".jpg"),
            "label": int(info.key[1:9]),
            "parts": [
                {
                    "ext": "jpg",
                    "key": info.key,
                    "size_bytes": info.size_bytes,
                    "etag": info.etag,
                    "unchanged": False,
                }
            ],
        }
        for page in source.list()
        for info in page
    )
    with ManifestWriter(path, SAMPLE_ORDER) as manifest:
        manifest.append(rows)


@dataclass(frozen=True, slots=True)
class Setting:
    """One set of files and what is packed from it, in a separate folder."""

    folder: Path

    def prepare(self, body: Body, count: int) -> int:
        """Make the files, and what everybody needs to know of them; returns their bytes."""
        make_files(body, count, self.files)
        order_samples(open_store(str(self.files)), self.sample_order)
        self.names.write_text("".join(f"{key}\n" for key in self.keys()))
        return sum(path.stat().st_size for path in self.files.rglob("*.jpg"))

    @property
    def files(self) -> Path:
        """The folder of the files."""
        return self.folder / "files"

    @property
    def out(self) -> Path:
        """Where the shards go."""
        return self.folder / "out"

    @property
    def sample_order(self) -> Path:
        """The manifest of the samples."""
        return self.folder / "order.parquet"

    @property
    def names(self) -> Path:
        """The files' names, a line each, in the order of the sample order."""
        return self.folder / "names.txt"

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The sample order."""
        return read_manifest(self.sample_order, SAMPLE_ORDER)

    def keys(self) -> list[str]:
        """The files, in the order of the sample order."""
        return [part.key for sample in read_samples(self.batches()) for part in sample.parts]

    def clear(self) -> None:
        """Remove the output, and let the disk come to rest."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        settle()


def pack_ours(setting: Setting) -> None:
    """Larder's way, with the limits of a local source."""
    source, target = open_store(str(setting.files)), open_store(str(setting.out))
    shard_format = format_of("webdataset")
    plans = list(
        plan_shards(
            split_sizes(setting.batches(), shard_format.sample_sizes),
            SHARD_BYTES,
            "bench",
            shard_format,
        )
    )
    samples = read_samples(setting.batches())
    index = setting.out / "index.parquet"
    concurrency = suited_concurrency(source, "none", 32)
    with open_reads(concurrency, 128 << 20) as reads, ManifestWriter(index, SAMPLES) as rows:
        for plan in plans:
            result = build_shard(
                plan, samples, source, target.writer, reads, shard_format, validate="none"
            )
            assert result.written, result.failures
            rows.append_batch(numbered(sample_rows(result, "segment"), plan.first_row))


def pack_by_gnu_tar(setting: Setting) -> None:
    """One archive of the same files, in the same order."""
    options = ["--format=ustar", "--no-recursion", "-C", str(setting.files)]
    command = ["tar", "-cf", str(setting.out / "all.tar"), *options, "-T", str(setting.names)]
    subprocess.run(command, check=True)
    sync_files(setting.out)


def pack_by_webdataset(setting: Setting) -> None:
    """As webdataset's documentation shows it."""
    pattern = str(setting.out / "bench-train-%06d.tar")
    limits = {"maxsize": SHARD_BYTES, "maxcount": 10**9, "verbose": 0}
    with webdataset.ShardWriter(pattern, **limits) as writer:
        for key in setting.names.read_text().splitlines():
            with open(setting.files / key, "rb") as file:
                image = file.read()
            label = int(key[1:9])
            writer.write({"__key__": key.removesuffix(".jpg"), "jpg": image, "cls": label})
    sync_files(setting.out)


PACKERS = {
    "ours": pack_ours,
    GNU_TAR: pack_by_gnu_tar,
    WEBDATASET: pack_by_webdataset,
}


def sync_files(folder: Path) -> None:
    """Sync what a peer wrote; ours does so by itself."""
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def turn(setting: Setting, name: str) -> dict[str, float]:
    """Let one of the packers work once; its seconds, with and without the syncs."""
    watch = Stopwatch()
    start = perf_counter()
    with watch.patched("sync", os, "fsync"):
        PACKERS[name](setting)
    total = perf_counter() - start
    return {"synced": total, "unsynced": total - watch.seconds["sync"]}


def profile(setting: Setting) -> dict[str, float]:
    """Where the time of ours goes: one turn with every part timed, which slows it a little.

    Reading, headers, crc32c and the last sync of each shard are done in one thread, sha256 and
    writing in another beside it. The rest is the wall time less what the first thread did: making
    samples, joining, the index, and waiting for the other thread or for the interpreter's lock.
    """
    watch = Stopwatch()
    with ExitStack() as stack:
        for name, owner, attribute in (
            ("read", LocalStore, "get"),
            ("header", tar, "member_header"),
            ("crc32c", google_crc32c, "value"),
            ("write", LocalWriter, "write"),
            ("sha256 and write", HashedOutput, "_put"),
            ("sync", os, "fsync"),
        ):
            stack.enter_context(watch.patched(name, owner, attribute))
        start = perf_counter()
        pack_ours(setting)
        wall = perf_counter() - start
    seconds = watch.seconds
    in_front = {name: seconds[name] for name in ("read", "header", "crc32c", "sync")}
    return {
        "wall": wall,
        **in_front,
        "rest": wall - sum(in_front.values()),
        "sha256 (beside)": seconds["sha256 and write"] - seconds["write"],
        "write (beside)": seconds["write"],
    }


def run_body(body: Body, count: int, runs: int, folder: Path) -> list[Case]:
    """Pack one body of files by everybody, and say how it went."""
    say(f"{body.name}: making {count:,} of them")
    setting = Setting(folder)
    packed_bytes = setting.prepare(body, count)
    contenders = {name: partial(apart, turn, setting, name) for name in PACKERS}
    medians = alternate(contenders, runs, before=setting.clear)
    cases = [_case(f"{body.name}, {measure}", measure, medians) for measure in medians["ours"]]
    setting.clear()
    _report(cases, count, packed_bytes, apart(profile, setting))
    return cases


def _case(name: str, measure: str, medians: Mapping[str, Mapping[str, float]]) -> Case:
    peers = {peer: found[measure] for peer, found in medians.items() if peer != "ours"}
    return Case(name, medians["ours"][measure], peers)


def _report(
    cases: Sequence[Case], count: int, packed_bytes: int, shares: Mapping[str, float]
) -> None:
    for case in cases:
        tar_seconds = case.peers[GNU_TAR]
        rows = [
            (
                name,
                f"{seconds:.3f}",
                f"{count / seconds:,.0f}",
                f"{packed_bytes / seconds / 1e6:,.0f}",
                f"{seconds / tar_seconds:.2f}",
            )
            for name, seconds in {"ours": case.ours, **case.peers}.items()
        ]
        say("\n" + table((case.name, "seconds", "files/s", "MB/s", "x GNU tar"), rows))
    wall = shares["wall"]
    parts = [(name, f"{part:.3f}", f"{part / wall:.0%}") for name, part in shares.items()]
    say("\n" + table(("where ours goes", "seconds", "of wall"), parts) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    flags = arguments("Pack files into tar shards: Larder, GNU tar, webdataset.", argv)
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as folder:
        for number, body in enumerate(BODIES):
            count = max(1, round(body.files * flags.files_scale))
            cases += run_body(body, count, flags.runs, Path(folder) / str(number))
    if flags.json:
        print(document("shards", cases))


if __name__ == "__main__":
    main()
