"""Ask a storage about a dataset of 3,000 versions and 200,000 samples.

The history is invented, and published with the functions of the library: each version has twelve
segments, one of them new, and packs some samples again. Shards have names and no content. Each
command is a process, as a user starts it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.harness import (
    LARDER,
    SECONDS,
    Contender,
    Figure,
    alternate,
    benchmark_parser,
    run,
    run_command,
)
from larder.jobs.manifests import forget, put_named
from larder.manifest.digest import sha256_hex
from larder.manifest.manifest_files import write_manifest
from larder.manifest.schemas import SOURCES
from larder.manifest.sealed import StoredFile, seal
from larder.segments.index_writer import IndexWriter
from larder.shards.model import ROWS
from larder.store import Store, open_store
from larder.versions import layout
from larder.versions.documents import (
    OmittedRows,
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    Shape,
    SplitFacts,
    VersionDocument,
)
from larder.versions.index import Shard
from larder.versions.leases import Lease
from larder.versions.publish import publish_document
from larder.versions.runs import RunRecord, write_run
from larder.versions.tags import TAG, move_tag

VERSIONS, SEGMENTS, EACH = 3_000, 12, 67
COMMANDS = {
    "ls": ["ls", "d"],
    "du": ["du", "d"],
    "clean": ["clean", "d", "--keep", "3", "--plan"],
    "trace": ["trace", "d", "again/000"],
}


def put_segment(root: Store, number: int, folder: Path) -> SegmentDocument:
    """Publish a segment: the samples that all have, and as many new ones."""
    id_ = sha256_hex(f"segment {number}".encode())[:32]
    keys = [f"{which}/{sample:03}" for which in ("again", f"{number:04}") for sample in range(EACH)]
    part = {"ext": "jpg", "etag": "0" * 32, "length": 9_000, "crc32c": 7}
    rows = [
        {"key": key, "label": 0, "offset": 10_000 * place, "length": 10_000}
        | {"parts": [part | {"source": f"{key}.jpg", "offset": 10_000 * place + 512}]}
        for place, key in enumerate(keys)
    ]
    name, size_bytes = f"d-train-{number:06}.tar", 10_000 * len(rows)
    shard = StoredFile(layout.shard_key(id_, "train", name), size_bytes, "0" * 64, "shard")
    root.put(shard.path, b"")
    with IndexWriter(folder) as writer:
        writer.append(name, pa.RecordBatch.from_pylist(rows, ROWS))
        writer.add_shard(Shard(id_, "train", 0, len(rows), 0, (shard,)))
        made = {"rows": writer.finish()}
    batch = pa.RecordBatch.from_pylist(rows, SOURCES)
    made["sources"] = write_manifest(folder / "sources", SOURCES, [batch])
    files = [
        put_named(root, layout.index_key(id_, role, file.sha256), file, role)
        for role, file in made.items()
    ]
    split = SegmentSplit(len(rows), 1, size_bytes, 0, number, number + 1)
    shape = Shape("webdataset", 1, 150_000_000, {}, None)
    segment = SegmentDocument("d", id_, shape, "header", {"train": split}, tuple(files))
    return publish_document(root, segment)


def put_version(root: Store, segments: Sequence[SegmentDocument], before: str | None) -> str:
    """Publish a version with the record and the lease that `larder prepare` leaves."""
    id_ = sha256_hex(segments[-1].id.encode())[:32]
    again, older = OmittedRows(EACH, ((0, EACH),)), segments[:-1]
    uses = [*(SegmentUse(segment.id, {"train": again}) for segment in older)]
    splits = [segment.splits["train"] for segment in segments]
    facts = SplitFacts(
        EACH * (len(segments) + 1),
        len(segments),
        sum(split.bytes for split in splits),
        tuple(
            layout.shard_key(segment.id, "train", f"d-train-{split.first_shard:06}.tar")
            for segment, split in zip(segments, splits, strict=True)
        ),
        EACH * len(older),
    )
    files = tuple(file for segment in segments for file in segment.files)
    shown = (*uses, SegmentUse(segments[-1].id)), {"train": facts}, ("a",), files, None
    publish_document(root, VersionDocument("d", id_, "0" * 64, "0" * 64, *shown))
    move_tag(root, TAG, id_, "0" * 64, before)
    run = RunRecord(dataset="d", version=id_, command="prepare", published=True, tag=TAG)
    changes = {"added": EACH, "unchanged": facts.samples - EACH}
    write_run(root, replace(run, before=before, after=id_, previous=before, changes=changes))
    root.put(layout.lease_key(f"config-c-{id_}"), seal(Lease("c", 30, (id_,))))
    return id_


def measure(flags: argparse.Namespace, folder: Path) -> Iterator[Figure]:
    storage, work = folder / "storage", folder / "work"
    work.mkdir()
    root = open_store(str(storage / layout.dataset_prefix("d")))
    segments: list[SegmentDocument] = []
    before = None
    for number in range(max(2, round(VERSIONS * flags.files_scale))):
        segments = [*segments, put_segment(root, number, work)][-SEGMENTS:]
        before = put_version(root, segments, before)
        forget()
    commands: dict[str, Contender] = {
        name: partial(run_command, [*LARDER, *command, "--storage", str(storage), "--json"])
        for name, command in COMMANDS.items()
    }
    for name, medians in alternate(commands, flags.rounds).items():
        yield Figure(f"{name}: seconds", medians[SECONDS])


PARSER = benchmark_parser("catalog", __doc__, rounds=5)

if __name__ == "__main__":
    run(PARSER, measure)
