"""Reading in training: Larder and the readers that others use, side by side.

The body is 4,000 JPEGs of 500 x 375 pixels (about 130 KB), packed into tars of 150 MB; for MosaicML
Streaming and LitData into their own shards of that size. Everybody takes turns in the same run,
each turn in a process of its own whose start and imports do not count. They are read from a local
S3 server, ``radosgw`` or ``rclone``, or from files in the page cache.

- stream: all samples in order, as bytes. curl writes the shards to /dev/null, one after the other.
  ``first`` is the first batch, from opening the version, or from making the peer's dataset. From
  files also with ``check="once"``, as LitData checks nothing: then ours is the second epoch of a
  version that is open, and the peers' the first.
- random: 1,000 samples by number. boto3 and curl are told the ranges.
- decode: an epoch of arrays of 224 x 224 pixels: the square in the middle, scaled by Pillow. Two
  workers, or threads of the process in SPDL's and ``decoding alone``, which has the images in
  memory. Ours also by threads; with simplejpeg; from images whose shorter side was made 224 pixels
  when they were packed; and from a cache of such images, decoded. The CPU includes workers.
- train: a small network of PyTorch, and one of Keras, over images packed small: the part of an
  epoch that it waits, for a batch or for the interpreter lock. torch's DataLoader reads the files.

The peers need the packages of benchmarks/requirements-read.txt, best in an environment of their
own; those that are not installed are left out.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter, process_time
from typing import Any
from unittest import mock

import boto3
from botocore.config import Config

from benchmarks.harness import (
    CPU,
    KEPT_SECONDS,
    SECONDS,
    Contender,
    Figure,
    Measured,
    Target,
    alternate,
    apart,
    ask_program,
    benchmark_parser,
    run,
)
from benchmarks.images import DISTINCT, photograph
from benchmarks.reading import ours, peers
from benchmarks.reading.peers import DATALOADER, KERAS, LITDATA, MDS, SPDL, WEBDATASET
from larder.packages import is_installed
from larder.pipeline.preparing import prepare
from tests.support.runs import run_settings
from tests.support.servers import S3Server, radosgw, rclone_s3

SAMPLES, SHARD_BYTES = 4_000, 150_000_000
AT_RANDOM = 1_000
WORKERS = 2
BUCKET = "read"

OURS, CURL, PARALLEL, BOTO3 = "Larder", "curl", "curl --parallel", "boto3, one by one"
ALONE = "decoding alone"
ONCE = f"{OURS}, check once"

FROM_S3 = Target(1 / 0.75, "curl 7.88.1")
FROM_FILES = Target(0.4, "webdataset 1.0.2")
"""0.12 s where webdataset takes 0.299."""
DECODING = Target(1.04, "Pillow 13.0.0")


@dataclass(frozen=True, slots=True)
class Body:
    """The files, what was packed from them, and who reads it.

    Attributes:
        versions: URL of the version by the form of its images: ``packed``, ``small``, ``decoded``.
    """

    folder: Path
    samples: int
    python: str
    installed: tuple[str, ...]
    versions: Mapping[str, str]

    @property
    def files(self) -> Path:
        return self.folder / "files"

    @property
    def shards(self) -> list[Path]:
        storage = self.folder / "storage-packed"
        return sorted(storage.rglob("*.tar"))

    def ask(self, turn: str, peer: str, **fields: Any) -> Measured:
        request = {
            "turn": turn,
            "peer": peer,
            "files": str(self.files),
            "samples": self.samples,
            "shards": [str(path) for path in self.shards],
            "mds": str(self.folder / MDS),
            "litdata": str(self.folder / LITDATA),
            "workers": WORKERS,
            **fields,
        }
        return ask_program(self.python, "benchmarks.reading.peers", request)


def make_body(folder: Path, samples: int, python: str) -> Body:
    """Write the images, and pack them: the versions of ours, and what peers want of their own."""
    files = folder / "files" / "train"
    files.mkdir(parents=True)
    distinct = [photograph(seed, 500, 375) for seed in range(min(DISTINCT, samples))]
    for number in range(samples):
        (files / f"{number:06d}.jpg").write_bytes(distinct[number % len(distinct)])
    small = {"images": {"resize": peers.SIZE}}
    forms: dict[str, dict[str, Any]] = {
        "packed": {},
        "small": {"shards": small},
        "decoded": {"shards": small, "cache": {"records": "decoded"}, "validate": "decode"},
    }
    versions = {}
    for form, fields in forms.items():
        storage = folder / f"storage-{form}"
        shards = {"bytes": SHARD_BYTES, **fields.pop("shards", {})}
        common = {"mirror": False, "splits": {"train": "train/**"}, **fields}
        prepare(run_settings(files.parent, storage, folder / "out", shards=shards, **common))
        versions[form] = str(storage / "larder" / "d")
    installed = tuple(ask_program(python, "benchmarks.reading.peers", {}))
    body = Body(folder, samples, python, installed, versions)
    for peer in {MDS, LITDATA} & set(installed):
        body.ask("make", peer, out=str(folder / peer), shard_bytes=SHARD_BYTES)
    return body


def figures_of(
    name: str,
    medians: Mapping[str, Measured],
    what: str,
    first: str = "",
    target: Target | None = None,
    ours: str = OURS,
) -> Figure:
    """Compare one contender with the others; ``first`` becomes the first peer."""
    peers = {who: took.get(what) for who, took in medians.items() if who != ours}
    first_peer = {first: peers.get(first)} if first else {}
    return Figure(f"{name}: {what}", medians[ours][what], {**first_peer, **peers}, target)


@contextmanager
def served(body: Body, kind: str) -> Iterator[S3Server]:
    """An S3 server with all that was packed."""
    with ExitStack() as stack:
        serving = radosgw() if kind == "radosgw" else rclone_s3(reread_seconds=KEPT_SECONDS)
        server = stack.enter_context(serving)
        stack.enter_context(mock.patch.dict(os.environ, server.environment))
        server.create_bucket(BUCKET)
        client = server.client()
        for name in ("storage-packed", MDS, LITDATA):
            for path in sorted((body.folder / name).rglob("*")):
                if path.is_file():
                    key = path.relative_to(body.folder).as_posix().replace(" ", "-")
                    client.upload_file(str(path), BUCKET, key)
        stack.callback(client.close)
        yield server


def presigned(server: S3Server, body: Body) -> list[str]:
    """URLs of the shards that need no credentials."""
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    client = boto3.client("s3", endpoint_url=server.endpoint, config=config)
    keys = [path.relative_to(body.folder).as_posix() for path in body.shards]
    signed = [
        client.generate_presigned_url("get_object", {"Bucket": BUCKET, "Key": key}) for key in keys
    ]
    client.close()
    return signed


def stream(body: Body, kind: str, rounds: int) -> Iterator[Figure]:
    with served(body, kind) as server:
        shards = presigned(server, body)
        prefix = f"s3://{BUCKET}/{body.shards[0].parent.relative_to(body.folder).as_posix()}/"
        remote = {
            "shards": shards,
            "prefix": prefix,
            "mds": f"s3://{BUCKET}/{MDS.replace(' ', '-')}",
            "litdata": f"s3://{BUCKET}/{LITDATA}",
        }
        version = f"s3://{BUCKET}/storage-packed/larder/d"
        environment = {"S3_ENDPOINT_URL": server.endpoint}
        turns: dict[str, Contender] = {
            OURS: partial(apart, ours.stream, version, body.samples),
            CURL: partial(curl, shards),
            **{
                peer: partial(body.ask, "stream", peer, **remote)
                for peer in peers.STREAMS
                if peer in body.installed
            },
        }
        with mock.patch.dict(os.environ, environment):
            medians = alternate(turns, rounds, before=partial(server.compute_etags, BUCKET))
    yield figures_of("stream from S3", medians, SECONDS, CURL, FROM_S3)
    yield figures_of("stream from S3", medians, "first")
    turns = {
        OURS: partial(apart, ours.stream, body.versions["packed"], body.samples),
        ONCE: partial(apart, ours.stream, body.versions["packed"], body.samples, "once"),
        **{
            peer: partial(body.ask, "stream", peer)
            for peer in (WEBDATASET, MDS, LITDATA)
            if peer in body.installed
        },
    }
    medians = alternate(turns, rounds)
    yield figures_of("stream from files", medians, SECONDS)
    once = 'stream from files, check="once"'
    yield figures_of(once, medians, SECONDS, WEBDATASET, FROM_FILES, ONCE)


def curl(urls: list[str]) -> Measured:
    """The shards, one after the other."""
    start = perf_counter()
    subprocess.run(["curl", "-sf", *_discarding(urls)], check=True)
    return {SECONDS: perf_counter() - start}


def _discarding(urls: list[str]) -> list[str]:
    return [word for url in urls for word in ("-o", "/dev/null", url)]


def at_random(body: Body, kind: str, rounds: int) -> Iterator[Figure]:
    """Samples by number, in an order that everybody has."""
    places = []
    with served(body, kind) as server:
        for path, url in zip(body.shards, presigned(server, body), strict=True):
            with tarfile.open(path) as archive:
                key = path.relative_to(body.folder).as_posix()
                members = (each for each in archive if each.name.endswith(".jpg"))
                places += [(key, url, each.offset_data, each.size) for each in members]
        numbers = random.Random(7).choices(range(body.samples), k=AT_RANDOM)
        ranges = [places[number] for number in numbers]
        version = f"s3://{BUCKET}/storage-packed/larder/d"
        turns: dict[str, Contender] = {
            OURS: partial(apart, ours.random_access, version, numbers),
            BOTO3: partial(one_by_one, server, ranges),
            PARALLEL: partial(in_parallel, body.folder, ranges),
        }
        medians = alternate(turns, rounds, before=partial(server.compute_etags, BUCKET))
    yield figures_of(f"{AT_RANDOM:,} samples at random from S3", medians, SECONDS)


def one_by_one(server: S3Server, ranges: list[tuple[str, str, int, int]]) -> Measured:
    client = server.client()
    start = perf_counter()
    for key, _, offset, length in ranges:
        span = f"bytes={offset}-{offset + length - 1}"
        assert len(client.get_object(Bucket=BUCKET, Key=key, Range=span)["Body"].read()) == length
    seconds = perf_counter() - start
    client.close()
    return {SECONDS: seconds}


def in_parallel(folder: Path, ranges: list[tuple[str, str, int, int]]) -> Measured:
    """The same ranges by one curl, as many at once as it does by default: 50."""
    lines = "next\n".join(
        f'url = "{url}"\nrange = "{offset}-{offset + length - 1}"\noutput = "/dev/null"\n'
        for _, url, offset, length in ranges
    )
    config = folder / "curl.config"
    config.write_text(lines)
    start = perf_counter()
    subprocess.run(
        ["curl", "-sf", "--no-progress-meter", "--parallel", "--config", str(config)], check=True
    )
    return {SECONDS: perf_counter() - start}


def decode(body: Body, kind: str, rounds: int) -> Iterator[Figure]:
    """Arrays of images, from files."""
    del kind
    pixels = {"decode": True, "size": peers.SIZE, "workers": WORKERS}
    cached = {"transforms": {"image": ours.middle}, "workers": 0}
    forms: dict[str, tuple[str, dict[str, Any], bool]] = {
        OURS: ("packed", pixels, False),
        f"{OURS}, threads": ("packed", {**pixels, "workers": 0}, False),
        f"{OURS}, simplejpeg": ("packed", pixels, True),
        f"{OURS}, packed small": ("small", pixels, True),
        f"{OURS}, decoded cache": ("decoded", cached, False),
    }
    if not is_installed("simplejpeg"):
        raise SystemExit("decode: simplejpeg is not installed: pip install -e '.[jpeg]'")
    turns: dict[str, Contender] = {
        **{
            name: partial(apart, ours.decode, body.versions[form], body.samples, *how)
            for name, (form, *how) in forms.items()
        },
        ALONE: partial(apart, decoding_alone, str(body.files)),
        **{
            peer: partial(body.ask, "decode", peer)
            for peer in (DATALOADER, SPDL, WEBDATASET, MDS, LITDATA)
            if peer in body.installed and (peer == SPDL or DATALOADER in body.installed)
        },
    }
    medians = alternate(turns, rounds)
    others = {name: took for name, took in medians.items() if name not in forms}
    for name in forms:
        took = {name: medians[name], **others}
        for what in (SECONDS, CPU):
            target = DECODING if (name, what) == (OURS, SECONDS) else None
            yield figures_of(f"images to 224 pixels, {name}", took, what, ALONE, target, name)


def decoding_alone(files: str) -> Measured:
    """The images, which are in memory, decoded by two threads."""
    images = peers.Files(files)
    contents = [images(number) for number in range(len(images))]
    peers.decoded(contents[0])
    start, cpu = perf_counter(), process_time()
    with ThreadPoolExecutor(WORKERS) as executor:
        for _ in executor.map(peers.decoded, contents):
            pass
    return {SECONDS: perf_counter() - start, CPU: process_time() - cpu}


def train(body: Body, kind: str, rounds: int) -> Iterator[Figure]:
    """The part of an epoch that a loop waits. The Python of the peers has the frameworks."""
    del kind
    loops = {
        loop: f"{OURS}, {loop}"
        for loop, framework in (("torch", DATALOADER), ("keras", KERAS))
        if framework in body.installed
    }
    ask = partial(ask_program, body.python, "benchmarks.reading.training")
    given = {"url": body.versions["small"], "files": str(body.files), "samples": body.samples}
    turns: dict[str, Contender] = {}
    for loop, name in loops.items():
        request = {**given, "loop": loop, "peer": OURS}
        turns[name] = partial(ask, {**request, "ours": 1})
        turns[f"{name}, threads"] = partial(ask, {**request, "ours": 0})
    if "torch" in loops:
        turns[DATALOADER] = partial(
            ask, {**given, "loop": "torch", "peer": DATALOADER, "workers": 1}
        )
    medians = alternate(turns, rounds)
    for loop, name in loops.items():
        yield figures_of(f"part of an epoch, {loop}", medians, "waiting", ours=name)


BODIES = {"stream": stream, "random": at_random, "decode": decode, "train": train}


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    samples = max(peers.BATCH, round(SAMPLES * flags.files_scale))
    body = make_body(folder, samples, flags.peers_python)
    for name in flags.only or BODIES:
        yield from BODIES[name](body, flags.server, flags.rounds)


PARSER = benchmark_parser("read", __doc__, rounds=5, cases=BODIES, peers=True)
PARSER.add_argument("--server", choices=("radosgw", "rclone"), default="radosgw")

if __name__ == "__main__":
    run(PARSER, measure)
