"""Sorting and joining manifests, and planning a run: Larder and pyarrow in memory.

::

    python -m benchmarks.planning [--runs 5] [--files-scale 1] [--directory DIR] [--json]

Sorts and joins are of 5,000,000 rows, from Parquet files to a stream of rows in the order of their
keys, every turn in a process of its own whose start does not count:

- sort: rows of random order. Ours is a statement of `larder.manifest.query`, in bounded memory; the
  peer reads the whole table and calls ``Table.sort_by``.
- join: 5,000,000 objects and what is known of 4,950,000 of them, a left join. The peer reads both
  tables and calls ``Table.join``, which knows no order, then ``sort_by``.

Plans are of 1,000,000 objects of a store that invents its listing, so that no store's time is in
them: all that ``--plan`` does, in the order of the keys, shuffled, and shuffled with a mirror that
has every object. They have no peer. The peak memory of every process is told on stderr.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.harness import (
    Case,
    alternate,
    apart,
    arguments,
    document,
    say,
    settle,
    table,
)
from larder.manifest.files import read_manifest, write_manifest
from larder.manifest.query import Rows, query
from larder.pipeline.inline import plan
from larder.store import ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from larder.testing.runs import between, run_settings

ROWS = 5_000_000
OBJECTS = 1_000_000
PYARROW = "pyarrow in memory"
CLASSES = 1_000

KNOWN = pa.schema(
    [
        pa.field("key", pa.string(), nullable=False),
        pa.field("size_bytes", pa.int64(), nullable=False),
        pa.field("etag", pa.string(), nullable=False),
        pa.field("checksum", pa.string()),
    ]
)
JOINED = pa.schema([*KNOWN, pa.field("copy_etag", pa.string()), pa.field("copy_sum", pa.string())])

SORT = "SELECT * FROM unordered ORDER BY key"
JOIN = """
SELECT o.*, c.etag AS copy_etag, c.checksum AS copy_sum
FROM objects AS o LEFT JOIN copies AS c ON c.key = o.key ORDER BY o.key
"""

Measured = Mapping[str, float]


def known_rows(numbers: np.ndarray[Any, Any], seed: int) -> pa.RecordBatch:
    """Rows of `KNOWN` for objects by number, with etags as long as an md5."""
    names = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 8, "0")
    folders = pc.utf8_lpad(pc.cast(pa.array(numbers // 1_300), pa.string()), 8, "0")
    keys = pc.binary_join_element_wise("train/n", folders, "/n", folders, "_", names, ".JPEG", "")
    etags = np.random.default_rng([seed, int(numbers[0])]).bytes(16 * len(numbers)).hex()
    offsets = pa.array(range(0, 32 * len(numbers) + 1, 32), pa.int32())
    digests = pa.StringArray.from_buffers(
        len(numbers), offsets.buffers()[1], pa.py_buffer(etags.encode())
    )
    sums = pc.binary_join_element_wise("crc32c:", pc.utf8_slice_codeunits(digests, 0, 8), "")
    return pa.record_batch([keys, pa.array(numbers % 100_000), digests, sums], schema=KNOWN)


def make_manifests(folder: Path, count: int) -> None:
    """``objects`` and ``copies`` in the order of their keys, ``unordered`` in none."""

    def write(name: str, numbers: np.ndarray[Any, Any], seed: int) -> None:
        pieces = np.array_split(numbers, len(numbers) // 100_000 + 1)
        batches = (known_rows(piece, seed) for piece in pieces)
        write_manifest(folder / f"{name}.parquet", KNOWN, batches)

    numbers = np.arange(count)
    write("objects", numbers, 0)
    write("copies", numbers[numbers % 100 > 0], 1)
    write("unordered", np.random.default_rng(7).permutation(numbers), 2)


def sort_ours(folder: Path) -> Iterator[pa.RecordBatch]:
    """One statement over a stream."""
    return query(SORT, _inputs(folder, "unordered"), KNOWN, work_dir=folder)


def sort_by_pyarrow(folder: Path) -> Iterator[pa.RecordBatch]:
    """All rows at once."""
    return iter(pq.read_table(folder / "unordered.parquet").sort_by("key").to_batches())


def join_ours(folder: Path) -> Iterator[pa.RecordBatch]:
    """One statement over two streams."""
    return query(JOIN, _inputs(folder, "objects", "copies"), JOINED, work_dir=folder)


def join_by_pyarrow(folder: Path) -> Iterator[pa.RecordBatch]:
    """All rows at once, joined, then sorted."""
    copies = pq.read_table(folder / "copies.parquet", columns=["key", "etag", "checksum"])
    copies = copies.rename_columns(["key", "copy_etag", "copy_sum"])
    joined = pq.read_table(folder / "objects.parquet").join(copies, "key", join_type="left outer")
    return iter(joined.sort_by("key").to_batches())


def _inputs(folder: Path, *names: str) -> dict[str, Rows]:
    return {name: Rows(KNOWN, read_manifest(folder / f"{name}.parquet", KNOWN)) for name in names}


TASKS = {
    "sort": {"ours": sort_ours, PYARROW: sort_by_pyarrow},
    "join": {"ours": join_ours, PYARROW: join_by_pyarrow},
}


def turn(folder: Path, task: str, name: str, count: int) -> Measured:
    """Let one contender do a task once, to its last row."""
    start = perf_counter()
    last = ""
    rows = 0
    for batch in TASKS[task][name](folder):
        keys = batch.column("key")
        assert last < keys[0].as_py(), "the keys are out of order"
        last = keys[-1].as_py()
        rows += batch.num_rows
    seconds = perf_counter() - start
    assert rows == count, f"{rows} rows"
    return {"seconds": seconds, "peak_bytes": peak_bytes()}


class InventingStore(DelegatingStore):
    """A store that makes up the objects below a prefix, a page at a time; else as another one.

    Args:
        inner: Answers for all other prefixes, and all other calls.
        prefix: Of the keys that are made up.
        count: How many there are.
    """

    def __init__(self, inner: Store, prefix: str, count: int) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._count = count

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        """See `larder.store.base.Readable.list`."""
        if prefix != self._prefix:
            yield from super().list(prefix, start_after=start_after)
            return
        folder_objects = max(1, self._count // CLASSES)
        for first in range(0, self._count, 1_000):
            yield [
                self._made_up(number, number // folder_objects)
                for number in range(first, min(first + 1_000, self._count))
            ]

    def _made_up(self, number: int, folder: int) -> ObjectInfo:
        key = f"{self._prefix}train/n{folder:08d}/n{folder:08d}_{number:08d}.JPEG"
        etag = f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032x}"
        return ObjectInfo(key, 50_000 + number * 7_919 % 100_000, etag, 1_700_000_000_000_000)


PLANS: Mapping[str, Mapping[str, Any]] = {
    "in key order": {"mirror": False},
    "shuffled": {"mirror": False, "shards": {"shuffle_seed": 7}},
    "shuffled, mirrored": {"mirror": True, "shards": {"shuffle_seed": 7}},
}


def plan_once(folder: Path, name: str, count: int) -> Measured:
    """Plan a run of ``count`` objects, as ``--plan`` does."""

    def invent(store: Store) -> Store:
        made_up = "" if store.url.startswith("memory://source/") else "mirror/"
        if made_up and not PLANS[name]["mirror"]:
            return store
        return InventingStore(store, made_up, count)

    fields = {"labels": {"from": "folder"}, "cache": {"records": "encoded"}, **PLANS[name]}
    settings = run_settings("memory://source", "s3://memory-storage/data", folder, **fields)
    start = perf_counter()
    with between(invent):
        planned = plan(settings)
    seconds = perf_counter() - start
    assert planned["objects"]["count"] == count, planned["objects"]
    assert planned["copied"]["count"] == 0, planned["copied"]
    return {"seconds": seconds, "peak_bytes": peak_bytes()}


def peak_bytes() -> float:
    """The most memory that this process ever had; NaN where the system does not tell."""
    # Not getrusage, whose peak begins with that of the process that started this one.
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return float("nan")
    found = re.search(r"VmHWM:\s*(\d+)", status)
    return 1024.0 * int(found[1]) if found else float("nan")


def run_task(task: str, folder: Path, count: int, runs: int) -> Case:
    """Sort or join by everybody, and say how it went."""
    peaks = dict.fromkeys(TASKS[task], 0.0)

    def contend(name: str) -> Measured:
        return _noted(peaks, name, apart(turn, folder, task, name, count))

    contenders = {name: partial(contend, name) for name in TASKS[task]}
    medians = alternate(contenders, runs, before=settle)
    seconds = {name: measured["seconds"] for name, measured in medians.items()}
    _report(f"{task} {count:,} rows", seconds, peaks, count)
    return Case(f"{task} {count:,} rows", seconds.pop("ours"), seconds)


def run_plan(name: str, folder: Path, count: int, runs: int) -> Case:
    """Plan, and say how it went."""
    peaks = {"ours": 0.0}

    def contend() -> Measured:
        return _noted(peaks, "ours", apart(plan_once, folder, name, count))

    medians = alternate({"ours": contend}, runs, before=settle)
    seconds = medians["ours"]["seconds"]
    title = f"plan {count:,} objects, {name}"
    _report(title, {"ours": seconds}, peaks, count)
    return Case(title, seconds, {})


def _noted(peaks: dict[str, float], name: str, measured: Measured) -> Measured:
    peaks[name] = max(peaks[name], measured["peak_bytes"])
    return {"seconds": measured["seconds"]}


def _report(title: str, seconds: Measured, peaks: Measured, count: int) -> None:
    rows = [
        (name, f"{took:.3f}", f"{count / took:,.0f}", f"{peaks[name] / 1e6:,.0f}")
        for name, took in seconds.items()
    ]
    say("\n" + table((title, "seconds", "rows/s", "peak MB"), rows) + "\n")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    flags = arguments("Sort, join and plan manifests: Larder, and pyarrow in memory.", argv)
    rows, objects = (max(1, round(each * flags.files_scale)) for each in (ROWS, OBJECTS))
    cases: list[Case] = []
    with tempfile.TemporaryDirectory(prefix="larder-bench-", dir=flags.directory) as name:
        folder = Path(name)
        say(f"making manifests of {rows:,} rows")
        make_manifests(folder, rows)
        cases += [run_task(task, folder, rows, flags.runs) for task in TASKS]
        cases += [run_plan(each, folder, objects, flags.runs) for each in PLANS]
    if flags.json:
        print(document("planning", cases))


if __name__ == "__main__":
    main()
