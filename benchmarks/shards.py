"""Packing files into tar shards: Larder beside GNU tar and webdataset's ShardWriter.

::

    python -m benchmarks.shards [--runs 5] [--files-scale 1] [--directory DIR] [--json]

Two bodies of files: 10,000 of about 110 KB (lognormal, as ImageNet's) and 50,000 of about 1 KB.
Everybody reads the same files in the same order from the page cache and writes to the same disk,
taking turns. Everybody's output is synced to the disk within the time (Larder's store does it by
itself, for the others it is done here), and the time without that sync is compared beside it, as
disks vary more than programs.

What each does:

- ours: reads the arrangement from Parquet, packs shards of 150 MB with labels as ``.cls``, checks
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

import google_crc32c
import pyarrow as pa
import webdataset

from benchmarks.harness import (
    Case,
    Contender,
    Stopwatch,
    alternate,
    arguments,
    document,
    say,
    settle,
    table,
)
from larder.manifest.files import ManifestWriter, read_manifest
from larder.manifest.schemas import ARRANGEMENT, SAMPLES
from larder.shards import output, tar
from larder.shards.build import build_shard
from larder.shards.index import sample_rows
from larder.shards.model import read_samples
from larder.shards.packing import plan_shards
from larder.shards.readahead import open_reads
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


def arrange(source: Store, path: Path) -> None:
    """The arrangement of the files, as the plan stage leaves it."""
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
                }
            ],
        }
        for page in source.list()
        for info in page
    )
    with ManifestWriter(path, ARRANGEMENT) as manifest:
        manifest.append(rows)


class Setting:
    """One body of files and what is packed from it, in a folder of its own."""

    def __init__(self, body: Body, count: int, folder: Path) -> None:
        self.count = count
        self.out = folder / "out"
        self._files = folder / "files"
        self._arrangement = folder / "arrangement.parquet"
        self._names = folder / "names.txt"
        make_files(body, count, self._files)
        self.source = open_store(str(self._files))
        arrange(self.source, self._arrangement)
        self.plans = list(plan_shards(split_sizes(self._batches()), SHARD_BYTES, "bench"))
        self._keys = [part.key for sample in read_samples(self._batches()) for part in sample.parts]
        self._names.write_text("\n".join(self._keys) + "\n")

    def clear(self) -> None:
        """Remove the output, and let the disk come to rest."""
        shutil.rmtree(self.out, ignore_errors=True)
        self.out.mkdir()
        settle()

    def ours(self) -> None:
        """Larder's way, with the limits of a local source."""
        target = open_store(str(self.out))
        samples = read_samples(self._batches())
        index = self.out / "index.parquet"
        with open_reads(1, 128 << 20) as reads, ManifestWriter(index, SAMPLES) as rows:
            for plan in self.plans:
                writer = target.writer(plan.name)
                result = build_shard(plan, samples, self.source, writer, reads, validate="none")
                assert result.written, result.failures
                rows.append_batch(sample_rows(result, "segment", plan.first_row))

    def gnu_tar(self) -> None:
        """One archive of the same files, in the same order."""
        options = ["--format=ustar", "--no-recursion", "-C", str(self._files)]
        command = ["tar", "-cf", str(self.out / "all.tar"), *options, "-T", str(self._names)]
        subprocess.run(command, check=True)

    def webdataset(self) -> None:
        """As webdataset's documentation shows it."""
        pattern = str(self.out / "bench-train-%06d.tar")
        with webdataset.ShardWriter(
            pattern, maxsize=SHARD_BYTES, maxcount=10**9, verbose=0
        ) as writer:
            for key in self._keys:
                with open(self._files / key, "rb") as file:
                    image = file.read()
                label = int(key[1:9])
                writer.write({"__key__": key.removesuffix(".jpg"), "jpg": image, "cls": label})

    def _batches(self) -> Iterator[pa.RecordBatch]:
        return read_manifest(self._arrangement, ARRANGEMENT)


def timed(setting: Setting, pack: Callable[[], None], *, sync: bool) -> Contender:
    """A contender: all its seconds, and those without the sync.

    Args:
        setting: Whose output is synced.
        pack: Does the work.
        sync: Whether the output is still to be synced.
    """

    def run() -> Mapping[str, float]:
        watch = Stopwatch()
        start = perf_counter()
        with watch.patched("sync", os, "fsync"):
            pack()
            for path in sorted(setting.out.iterdir()) if sync else ():
                with path.open("rb") as file:
                    os.fsync(file.fileno())
        total = perf_counter() - start
        return {"synced": total, "unsynced": total - watch.seconds["sync"]}

    return run


def profile(setting: Setting) -> dict[str, float]:
    """Where the time of ours goes: one run with every part of it timed, which slows it a little.

    Reading, headers and crc32c are done in one thread; sha256, writing and syncing the blocks in
    another beside it (the last sync of each shard in the first). The rest is the wall time of the
    first thread less its own parts: making samples, joining, the index, and waiting for the other.
    """
    watch = Stopwatch()
    inner = setting.source.inner if hasattr(setting.source, "inner") else setting.source
    assert isinstance(inner, LocalStore)
    with ExitStack() as stack:
        for name, owner, attribute in (
            ("read", inner, "get"),
            ("header", tar, "member_header"),
            ("crc32c", google_crc32c, "value"),
            ("write", LocalWriter, "write"),
            ("hash and write", output.HashedOutput, "_put"),
            ("sync", os, "fsync"),
        ):
            stack.enter_context(watch.patched(name, owner, attribute))
        start = perf_counter()
        setting.ours()
        wall = perf_counter() - start
    seconds = watch.seconds
    first_thread = sum(seconds[name] for name in ("read", "header", "crc32c", "sync"))
    return {
        "wall": wall,
        "read": seconds["read"],
        "header": seconds["header"],
        "crc32c": seconds["crc32c"],
        "sync": seconds["sync"],
        "rest": wall - first_thread,
        "sha256 (beside)": seconds["hash and write"] - seconds["write"],
        "write (beside)": seconds["write"],
    }


def run_body(body: Body, count: int, runs: int, folder: Path) -> list[Case]:
    """Pack one body of files by everybody, and say how it went."""
    say(f"{body.name}: making {count:,} of them")
    setting = Setting(body, count, folder)
    medians = alternate(
        {
            "ours": timed(setting, setting.ours, sync=False),
            GNU_TAR: timed(setting, setting.gnu_tar, sync=True),
            WEBDATASET: timed(setting, setting.webdataset, sync=True),
        },
        runs,
        before=setting.clear,
    )
    cases = [_case(f"{body.name}, {measure}", measure, medians) for measure in medians["ours"]]
    packed_bytes = sum(path.stat().st_size for path in (folder / "files").rglob("*.jpg"))
    setting.clear()
    _report(cases, count, packed_bytes, profile(setting))
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
