"""Sorting and matching manifests, and planning a run: Larder and pyarrow in memory.

Sorts and matches are of 5,000,000 rows, from Parquet files to a stream of rows in the order of
their keys, every turn in a process of its own whose start does not count:

- sort: rows in random order. Ours is a statement of `larder.manifest.query`, in bounded memory; the
  peer reads the whole table and calls ``Table.sort_by``.
- match: 5,000,000 objects with the listing of a mirror and receipts of copies in random order, each
  of which has 99 of 100 objects. Ours is `larder.copy.copy_matches.uncopied`. The peer reads
  three tables and calls ``Table.join`` twice, which knows no order, then ``sort_by``.

Plans are of 1,000,000 objects of a store that invents its listing, so that no store's time is in
them: all that ``--plan`` does, in the order of the keys, shuffled, and shuffled with a mirror that
has every object. They have no peer.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.growing.memory import status_bytes
from benchmarks.harness import (
    PEAK,
    SECONDS,
    Figure,
    Measured,
    alternate,
    apart,
    benchmark_parser,
    run,
    say,
)
from larder.copy.copy_matches import uncopied
from larder.manifest.manifest_files import read_manifest, write_manifest
from larder.manifest.query import Stream, query
from larder.manifest.schemas import DUE, OBJECTS
from larder.pipeline.preparing import prepare
from larder.store import ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from tests.support.runs import between, run_settings

ROWS = 5_000_000
PLANNED_OBJECTS = 1_000_000
PYARROW = "pyarrow in memory"
CLASSES = 1_000

FACTORS = np.array([0x9E3779B97F4A7C15, 7_919], np.uint64)

Numbers = np.ndarray[Any, np.dtype[np.int64]]

SORT = "SELECT * FROM receipts ORDER BY key"


def hex_digests(numbers: Numbers, seed: int) -> pa.Array:
    """A string as long as an md5 for each number."""
    words = (numbers + seed).astype(np.uint64)[:, None] * FACTORS
    offsets = pa.array(range(0, 32 * len(numbers) + 1, 32), pa.int32())
    text = pa.py_buffer(words.tobytes().hex().encode())
    return pa.StringArray.from_buffers(len(numbers), offsets.buffers()[1], text)


def object_rows(numbers: Numbers, *, copied: bool) -> pa.RecordBatch:
    """Rows of OBJECTS for objects by number: of an inventory, or receipts of their copies."""
    names = pc.utf8_lpad(pc.cast(pa.array(numbers), pa.string()), 8, "0")
    folders = pc.utf8_lpad(pc.cast(pa.array(numbers // 1_300), pa.string()), 8, "0")
    copies = hex_digests(numbers, 1)
    columns = {
        "key": pc.binary_join_element_wise("n", folders, "/n", folders, "_", names, ".JPEG", ""),
        "size_bytes": pa.array(numbers % 100_000),
        "etag": hex_digests(numbers, 0),
        "modified": pa.array(numbers, OBJECTS.field("modified").type),
    }
    if copied:
        columns |= {"mirror_etag": copies, "checksum": pc.utf8_slice_codeunits(copies, 0, 8)}
    unknown = pa.nulls(len(numbers), pa.string())
    return pa.record_batch([columns.get(name, unknown) for name in OBJECTS.names], schema=OBJECTS)


def make_manifests(folder: Path, count: int) -> None:
    """``objects`` and ``copies`` in the order of their keys, ``receipts`` in none."""

    def write(name: str, numbers: Numbers) -> None:
        pieces = np.array_split(numbers, len(numbers) // 100_000 + 1)
        batches = (object_rows(piece, copied=name != "objects") for piece in pieces)
        write_manifest(folder / f"{name}.parquet", OBJECTS, batches)

    numbers = np.arange(count)
    copied = numbers[numbers % 100 > 0]
    write("objects", numbers)
    write("copies", copied)
    write("receipts", np.random.default_rng(7).permutation(copied))


def read(folder: Path, name: str) -> Iterator[pa.RecordBatch]:
    """One of the manifests."""
    return read_manifest(folder / f"{name}.parquet", OBJECTS)


def listing(folder: Path) -> Iterator[ObjectInfo]:
    """The copies as a mirror lists them."""
    for batch in read(folder, "copies"):
        columns = (batch.column(name) for name in ("key", "size_bytes", "mirror_etag"))
        yield from map(ObjectInfo, *(column.to_pylist() for column in columns), repeat(0))


def sort_ours(folder: Path) -> Iterator[pa.RecordBatch]:
    """One statement over a stream."""
    rows = Stream(OBJECTS, read(folder, "receipts"))
    return query(SORT, {"receipts": rows}, OBJECTS, work_dir=folder)


def sort_by_pyarrow(folder: Path) -> Iterator[pa.RecordBatch]:
    """All rows at once."""
    return iter(pq.read_table(folder / "receipts.parquet").sort_by("key").to_batches())


def match_ours(folder: Path) -> Iterator[pa.RecordBatch]:
    """What a plan does to see which objects are not mirrored yet."""
    objects = (batch.select(DUE.names) for batch in read(folder, "objects"))
    record = read(folder, "copies")
    return uncopied(objects, listing(folder), [], record, md5=False, work_dir=folder)


def match_by_pyarrow(folder: Path) -> Iterator[pa.RecordBatch]:
    """All rows at once, joined twice, then sorted."""
    objects = pq.read_table(folder / "objects.parquet", columns=["key", "size_bytes", "etag"])
    copies = pq.read_table(folder / "copies.parquet", columns=["key", "size_bytes", "mirror_etag"])
    names = ["key", "etag", "mirror_etag", "checksum"]
    receipts = pq.read_table(folder / "receipts.parquet", columns=names)
    found = objects.join(copies, ["key", "size_bytes"], join_type="left outer")
    found = found.join(receipts, names[:3], join_type="left outer")
    return iter(found.filter(pc.field("checksum").is_null()).sort_by("key").to_batches())


TASKS = {
    "sort": {"ours": sort_ours, PYARROW: sort_by_pyarrow},
    "match": {"ours": match_ours, PYARROW: match_by_pyarrow},
}


def turn(folder: Path, task: str, name: str, count: int) -> Measured:
    """Let one contender do a task once, to its last row."""
    start = perf_counter()
    last = ""
    rows = 0
    for batch in filter(len, TASKS[task][name](folder)):
        keys = batch.column("key")
        assert last < keys[0].as_py(), "the keys are out of order"
        last = keys[-1].as_py()
        rows += batch.num_rows
    seconds = perf_counter() - start
    uncopied_count = -(-count // 100)
    assert rows == (uncopied_count if task == "match" else count - uncopied_count), rows
    return {SECONDS: seconds, PEAK: status_bytes("VmHWM")}


class InventingStore(DelegatingStore):
    """A store that makes up the objects below a prefix, a page at a time; else as another one."""

    def __init__(self, inner: Store, prefix: str, count: int) -> None:
        super().__init__(inner)
        self._prefix = prefix
        self._count = count

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
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
        planned = prepare(settings, plan_only=True)
    seconds = perf_counter() - start
    assert planned["objects"]["count"] == count, planned["objects"]
    assert planned["copied"]["count"] == 0, planned["copied"]
    return {SECONDS: seconds, PEAK: status_bytes("VmHWM")}


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    rows, objects = (max(1, round(each * flags.files_scale)) for each in (ROWS, PLANNED_OBJECTS))
    say(f"making manifests of {rows:,} rows")
    make_manifests(folder, rows)
    works = {
        f"{task} {rows:,} rows": {
            name: partial(apart, turn, folder, task, name, rows) for name in by
        }
        for task, by in TASKS.items()
    }
    works |= {
        f"plan {objects:,} objects, {name}": {
            "ours": partial(apart, plan_once, folder, name, objects)
        }
        for name in PLANS
    }
    for title, contenders in works.items():
        say(title)
        medians = alternate(contenders, flags.rounds)
        for what in (SECONDS, PEAK):
            measured = {name: took[what] for name, took in medians.items()}
            yield Figure(f"{title}: {what}", measured.pop("ours"), measured)


PARSER = benchmark_parser("planning", __doc__, rounds=5)

if __name__ == "__main__":
    run(PARSER, measure)
