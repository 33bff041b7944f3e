"""Larder's way of packing, in this process or shared by two."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import cache
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import Any

import google_crc32c

from benchmarks.packing.bodies import SHARD_BYTES, Body, Setting
from larder.config.shape import DEFAULTS
from larder.machine import usable_cores
from larder.manifest.manifest_files import ManifestWriter, read_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.shards import hashed_output
from larder.shards.formats import shard_format, tar
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.images.check import ImageRules
from larder.shards.model import ROWS, ShardPlan, read_samples
from larder.shards.packing import batch_shards, plan_shards, running_totals, target_for
from larder.shards.reading.readahead import open_reads, suited_concurrency
from larder.shards.shard_build import ShardBuild, build_shard
from larder.shards.sizes import split_sizes
from larder.store import open_store
from larder.store.local.store import LocalStore
from larder.store.local.write import LocalWriter

TAR = "webdataset"
MEASURES = ("synced", "unsynced")
SPLIT = "train"
SHARES = 2

_MEMORY_BYTES = 128 << 20
_CONCURRENCY = 32
_IN_FRONT = ("read", "header", "crc32c", "sync")


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


def turn(setting: Setting, format_name: str) -> dict[str, float]:
    """Plan and pack everything; the seconds, with and without the syncs."""
    import_all(format_name)
    return _timed(lambda: _pack_all(setting, format_name))


def _share(setting: Setting, format_name: str, shards: Sequence[ShardPlan]) -> dict[str, float]:
    """Pack some shards beside another process; the seconds, with and without the syncs."""
    hash_beside = usable_cores() > SHARES  # as in a run
    return _timed(lambda: _pack(setting, format_name, shards, hash_beside=hash_beside))


def _timed(work: Callable[[], None]) -> dict[str, float]:
    watch = Stopwatch()
    start = perf_counter()
    with watch.patched("sync", os, "fsync"):
        work()
    total = perf_counter() - start
    return {"synced": total, "unsynced": total - watch.seconds["sync"]}


def turn_of_two(setting: Setting, format_name: str) -> dict[str, float]:
    """The same by two processes, each with half of the shards; both have started before.

    The shards are planned once within the time, as for a run with ``shards.count_min: 2``.
    """
    with ExitStack() as stack:
        context = get_context("spawn")
        pools = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=context)) for _ in range(SHARES)
        ]
        for ready in [pool.submit(import_all, format_name) for pool in pools]:
            ready.result()
        start = perf_counter()
        shares = _planned(setting, _format(setting, format_name), SHARES)
        planned = perf_counter() - start
        halves = [
            pool.submit(_share, setting, format_name, shards)
            for pool, shards in zip(pools, shares, strict=True)
        ]
        found = [half.result() for half in halves]
        synced = perf_counter() - start
    return {"synced": synced, "unsynced": planned + max(half["unsynced"] for half in found)}


@cache
def import_all(format_name: str) -> None:
    """Pack a tiny body, once: modules are imported when they are first used."""
    with tempfile.TemporaryDirectory() as folder:
        setting = Setting(Path(folder))
        setting.prepare(Body("tiny", 2, 10))
        setting.out.mkdir()
        _pack_all(setting, format_name)


def _pack_all(setting: Setting, format_name: str) -> None:
    (shards,) = _planned(setting, _format(setting, format_name), 1)
    _pack(setting, format_name, shards, hash_beside=True)


def _pack(
    setting: Setting, format_name: str, plans: Sequence[ShardPlan], *, hash_beside: bool
) -> None:
    """Pack neighbouring shards, with the limits of a local source, and write their index."""
    source, target = open_store(str(setting.files)), open_store(str(setting.out))
    format_ = _format(setting, format_name)
    rows = read_manifest(
        setting.sample_order,
        SAMPLE_ORDER,
        first_row=plans[0].first_row,
        rows=sum(plan.rows for plan in plans),
    )
    samples = read_samples(rows)
    index = setting.out / f"index-{plans[0].index}.parquet"
    concurrency = suited_concurrency(source, "none", _CONCURRENCY)
    with open_reads(concurrency, _MEMORY_BYTES) as reads, ManifestWriter(index, ROWS) as found:
        for plan in plans:
            own = islice(samples, plan.rows)
            result = build_shard(
                plan,
                own,
                format_,
                target.writer,
                ShardBuild(source, reads, rules=ImageRules("none"), hash_beside=hash_beside),
            )
            assert result.files, result.failures
            for rows in result.samples.read():
                found.append_batch(rows)


def _format(setting: Setting, name: str) -> ShardFormat:
    """The format, which may have to look at all samples first."""
    format_ = shard_format(name)
    if not format_.surveys:
        return format_
    layout = format_.survey(read_manifest(setting.sample_order, SAMPLE_ORDER), None)
    return shard_format(name, replace(DEFAULTS, layout=layout))


def _planned(setting: Setting, format_: ShardFormat, shares: int) -> list[tuple[ShardPlan, ...]]:
    """The shards of each share: neighbours, about as many bytes as the others have."""
    sizes = split_sizes(read_manifest(setting.sample_order, SAMPLE_ORDER), format_.sample_sizes)
    ends, targets = running_totals(sizes, setting.folder / "totals"), {}
    if shares > 1:
        targets[SPLIT] = target_for(ends[SPLIT], SHARD_BYTES, shares, format_.empty_bytes)
    plans = list(plan_shards(ends, SHARD_BYTES, "bench", format_, targets=targets))
    if shares == 1:
        return [tuple(plans)]
    total = sum(each.bytes for each in plans)
    largest = max(each.bytes for each in plans)
    batches = batch_shards(plans, max(largest, total // shares + largest // 2))
    assert len(batches) == shares, [len(batch.shards) for batch in batches]
    return [batch.shards for batch in batches]


def where_it_goes(setting: Setting) -> dict[str, float]:
    """Where the time of a tar goes: one turn with every part timed, which slows it a little.

    Reading, headers, crc32c and the last sync of each shard are done in one thread, sha256 and
    writing in two others beside it. The rest is the wall time less what the first thread did:
    making samples, joining, the index, and waiting for the others or for the interpreter's lock.
    """
    import_all(TAR)
    watch = Stopwatch()
    with ExitStack() as stack:
        for name, owner, attribute in (
            ("read", LocalStore, "get_each"),
            ("header", tar, "member_header"),  # of samples that are added one by one
            ("header", tar, "member_headers"),
            ("crc32c", google_crc32c, "value"),
            ("write", LocalWriter, "write"),
            ("sha256 and write", hashed_output, "_give"),
            ("sync", os, "fsync"),
        ):
            stack.enter_context(watch.patched(name, owner, attribute))
        start = perf_counter()
        _pack_all(setting, TAR)
        wall = perf_counter() - start
    seconds = watch.seconds
    in_front = {name: seconds[name] for name in _IN_FRONT}
    return {
        "wall": wall,
        **in_front,
        "rest": wall - sum(in_front.values()),
        "sha256 (beside)": seconds["sha256 and write"] - seconds["write"],
        "write (beside)": seconds["write"],
    }
