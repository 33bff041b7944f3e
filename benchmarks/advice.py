"""Start-up as `larder advise` predicts it, and as it is: seconds until the first sample is read.

Bodies of random bytes, of 8 shards of 8 MB, with and without a cache, and of 128 shards of 200 kB:
on disk, and in a local S3 server behind a link of 20 MB/s that delays every answer by 20 ms. What
the predictions need to know of the link or the disk, the time of a request and bytes per second, is
measured first, with other objects. The link has most of the time: three minutes on two cores.

Ours is the prediction. The peer is the median of what was measured, each time in a process of its
own whose start and imports do not count.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from importlib import import_module
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from unittest import mock

import boto3

import larder
from benchmarks.copying.delay import delayed
from benchmarks.harness import (
    SECONDS,
    Figure,
    Measured,
    alternate,
    apart,
    benchmark_parser,
    run,
    say,
)
from larder.config.models.cluster import Limits, Nodes
from larder.experiments.advice import advise
from larder.experiments.facts import Facts
from larder.pipeline.preparing import prepare
from larder.readers.data import Data
from tests.support.runs import run_settings
from tests.support.servers import rclone_s3

LARGE, SMALL = (64, 1_000_000, 8_000_000), (128, 200_000, 200_000)
BODIES = {"large": LARGE, "small": SMALL, "cached": LARGE}
"""Of each body: samples, their bytes, and those of a shard."""

LINK_SECONDS, LINK_BYTES_PER_SECOND = 0.02, 20_000_000
PROBES, PROBE_BYTES = 20, 16_000_000
BUCKET = "advice"
DELIVERIES = ("bind_mount", "bucket", "inline", "download", "stream", "cache")


def make_body(folder: Path, name: str, scale: float) -> dict[str, Any]:
    """Prepare a dataset in ``FOLDER/advice/NAME``; the document of the run."""
    samples, sample_bytes, shard_bytes = BODIES[name]
    source = folder / name / "train"
    source.mkdir(parents=True)
    bytes_of = random.Random(7).randbytes
    for number in range(max(2, round(samples * scale))):
        (source / f"{number:06d}.bin").write_bytes(bytes_of(sample_bytes))
    return prepare(
        run_settings(
            source.parent,
            folder / BUCKET / name,
            folder / "out",
            mirror=False,
            shards={"bytes": shard_bytes},
            cache={"records": "encoded"} if name == "cached" else None,
        )
    )


def rates(read: Callable[[str], bytes]) -> Nodes:
    """What one reading of each probe takes: of a byte, and of many."""

    def seconds(name: str) -> float:
        start = perf_counter()
        read(name)
        return perf_counter() - start

    read("tiny")
    request = median(seconds("tiny") for _ in range(PROBES))
    bulk = median(seconds("bulk") for _ in range(3)) - request
    rate = round(PROBE_BYTES / bulk)
    say(f"a request takes {request * 1e3:.1f} ms, then {rate / 1e6:.1f} MB/s")
    return Nodes(bytes_per_second=rate, request_seconds=request)


def first_batch(data: Data, folder: str) -> Any:
    """In order, as a loader reads; the loader, which reads ahead until it is closed."""
    batches = iter(data.loader("train", batch_size=2, shuffle=False))
    assert next(batches)
    return batches


def one_sample(data: Data, folder: str) -> Any:
    """By its number."""
    samples = data.samples_of("train")
    assert samples[len(samples) // 2]


def first_record(data: Data, folder: str) -> Any:
    """Of the cache, which is fetched first if it is in a bucket."""
    assert data.cache("train")[0]


def downloaded(data: Data, folder: str) -> Any:
    """All shards, indexes and caches, as the startup hook and code for `bucket` do it."""
    data.copy_to(f"{folder}/storage")


def timed(read: Callable[[Data, str], Any], url: str) -> Measured:
    """Seconds to open a version and read, without imports and with nothing kept from before."""
    for module in ("loader", "cache_reader"):
        import_module(f"larder.readers.{module}")
    with tempfile.TemporaryDirectory() as folder:
        start = perf_counter()
        kept = read(larder.open(url, cache_dir=f"{folder}/kept"), folder)
        seconds = perf_counter() - start
        del kept
        return {SECONDS: seconds}


CASES: Sequence[tuple[str, str, str, str, Callable[[Data, str], Any]]] = (
    ("large", "bucket", "download", "sequential", downloaded),
    ("small", "bucket", "download", "sequential", downloaded),
    ("cached", "bucket", "download", "sequential", downloaded),
    ("large", "bucket", "bucket", "sequential", downloaded),
    ("small", "bucket", "bucket", "sequential", downloaded),
    ("large", "bucket", "stream", "sequential", first_batch),
    ("small", "bucket", "stream", "sequential", first_batch),
    ("large", "bucket", "stream", "random", one_sample),
    ("cached", "bucket", "cache", "random", first_record),
    ("cached", "bucket", "stream", "sequential", first_batch),
    ("large", "directory", "bind_mount", "sequential", first_batch),
    ("large", "directory", "bind_mount", "random", one_sample),
    ("cached", "directory", "cache", "random", first_record),
)
"""Body, where it is, delivery, access, and what is measured."""


def predicted(
    run: Mapping[str, Any], place: str, delivery: str, access: Any, nodes: Nodes
) -> float:
    facts = Facts(
        "determined",
        DELIVERIES,
        run["shards"]["bytes"],
        run["shards"]["count"],
        samples=run["shards"]["samples"],
        cache_bytes=run["cache"]["bytes"] if run["cache"] else None,
        access=access,
        storage="server" if place == "bucket" else "file",
        nodes=nodes,
    )
    options = {option.delivery: option for option in advise(facts, Limits()).options}
    return options[delivery].startup_seconds


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    bodies = {name: make_body(folder, name, flags.files_scale) for name in BODIES}
    served = folder / BUCKET
    for name, size_bytes in {"tiny": 1, "bulk": PROBE_BYTES}.items():
        (served / name).write_bytes(os.urandom(size_bytes))
    os.sync()
    with ExitStack() as stack:
        server = stack.enter_context(rclone_s3(folder))
        far = delayed(server, LINK_SECONDS, LINK_BYTES_PER_SECOND)
        environment = stack.enter_context(far).environment
        stack.enter_context(mock.patch.dict(os.environ, environment))
        client = stack.enter_context(closing(boto3.client("s3")))
        probes: dict[str, Callable[[str], bytes]] = {
            "bucket": lambda name: client.get_object(Bucket=BUCKET, Key=name)["Body"].read(),
            "directory": lambda name: (served / name).read_bytes(),
        }
        nodes = {place: rates(probe) for place, probe in probes.items()}
        for body, place, delivery, access, read in CASES:
            root = f"s3://{BUCKET}" if place == "bucket" else str(served)
            url = f"{root}/{body}/larder/d"
            name = f"{delivery}, {access}, {body} shards in a {place}: seconds"
            contender = partial(apart, timed, read, url)
            measured = alternate({name: contender}, flags.rounds)[name]
            ours = predicted(bodies[body], place, delivery, access, nodes[place])
            yield Figure(name, ours, {"measured": measured[SECONDS]})


PARSER = benchmark_parser("advice", __doc__)

if __name__ == "__main__":
    run(PARSER, measure)
