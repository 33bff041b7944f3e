"""The requests that a plan counts are those that its run makes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest
from archives_lab import tar
from pipeline_lab import DOCUMENT, Lab, write

from larder.store.base import Store
from larder.testing.recording import RecordedCall, RecordingStore
from larder.testing.runs import between

LOOSE = {f"{at:03d}.bin": bytes(1_000) for at in range(50)}
LINES = b"".join(b'{"n":%d,"text":"%s"}\n' % (at, b"x" * 1_000) for at in range(300))
ROWS = b"n,text\n" + b"".join(b"%d,%s\n" % (at, b"x" * 1_000) for at in range(300))
ENTRIES = b"file_name,text\n" + b"".join(b"%03d.bin,x\n" % at for at in range(50))
SMALL = {f"{at:03d}.bin": bytes(3_000) for at in range(200)}
LARGE = {f"{at:03d}.bin": bytes(300_000) for at in range(9)}

WRITTEN = re.compile(r"segments/\w+/shards/|index/\w+/\w+/|versions/\w+/readers/|work/derived/")
"""Shards, indexes of other readers, indexes of archives and tables, and containers."""


def run(
    folder: Path, objects: Mapping[str, bytes], source: Mapping[str, Any], **fields: Any
) -> tuple[DOCUMENT, list[RecordedCall], list[RecordedCall]]:
    """A plan from one region to another; what the run calls of the source, and of the storage."""
    name = uuid.uuid4().hex
    write(f"memory://{name}-source", objects)
    lab = Lab(
        {"url": f"s3://memory-{name}-source", "region": "us-east-1", **source},
        {"url": f"s3://memory-{name}-local", "region": "us-west-2"},
        folder / "out",
        {"validate": "none", "mirror": False, **fields},
    )
    calls: tuple[list[RecordingStore], list[RecordingStore]] = [], []

    def recorded(store: Store) -> Store:
        found = RecordingStore(store)
        calls["-local" in store.url].append(found)
        return found

    with between(recorded):
        plan = lab.plan()
        for stores in calls:
            stores.clear()
        assert lab.prepare()["status"] == "built"
    theirs, ours = (
        [replace(call, key=store.url + call.key) for store in stores for call in store.calls]
        for stores in calls
    )
    return plan, theirs, ours


def read(calls: list[RecordedCall]) -> list[RecordedCall]:
    return [call for call in calls if call.method in ("get", "open")]


def written(calls: list[RecordedCall]) -> int:
    """Objects of some size that were written."""
    methods = ("put", "commit", "upload")
    return sum(call.method in methods and bool(WRITTEN.search(call.key)) for call in calls)


@pytest.mark.parametrize(
    ("objects", "source", "fields"),
    [
        (LOOSE, {}, {}),
        (LOOSE, {}, {"shards": {"bytes": 10_000}}),
        (LOOSE, {}, {"shards": {"format": "tfrecord", "bytes": 10_000}}),
        (LOOSE, {}, {"shards": {"format": "recordio", "bytes": 10_000}}),
        (LOOSE, {}, {"shards": {"format": "parquet", "bytes": 10_000}}),
        (LOOSE, {}, {"shards": {"format": "records", "bytes": 10_000}}),
        (LOOSE, {}, {"shards": {"format": "batches", "samples_per_shard": 10}}),
        ({"a.tar": tar(SMALL), "b.tar": tar(LARGE)}, {"archives": "expand"}, {}),
        ({"a.tar": tar({"b.tar": tar(LARGE)}), **LOOSE}, {"archives": "expand"}, {}),
        ({"a.jsonl": LINES, "b.jsonl": LINES}, {"rows": {}}, {}),
        ({"a.csv": ROWS}, {"rows": {}}, {}),
        ({**LOOSE, "m.csv": ENTRIES}, {}, {"samples": {"annotations": {"files": "m.csv"}}}),
    ],
)
def test_what_a_plan_counts_is_what_its_run_does(
    tmp_path: Path, objects: Mapping[str, bytes], source: Any, fields: Any
) -> None:
    plan, theirs, ours = run(tmp_path, objects, source, **fields)
    assert plan["requests"]["put"] == written(ours)
    own = [call for call in read(ours) if "work/derived" in call.key]
    assert plan["requests"]["get"] == pytest.approx(len(read(theirs)) + len(own), abs=4)
    (egress,) = plan["cost"]["egress"]
    crossed = sum(call.size_bytes for call in read(theirs))
    assert egress["bytes"] == pytest.approx(crossed, rel=0.05)


def test_headers_of_archives_cost_requests_once(tmp_path: Path) -> None:
    """Members of 300 kB are far apart, so each header is a request of its own."""
    loose, _, _ = run(tmp_path, LARGE, {})
    plan, theirs, _ = run(tmp_path, {"b.tar": tar(LARGE)}, {"archives": "expand"})
    headers = list(takewhile(lambda call: call.size_bytes < 100_000, read(theirs)))
    assert len(headers) >= len(LARGE) + 1, "of each member, and the end"
    assert plan["requests"]["get"] > len(headers)
    assert plan["requests"]["put"] == loose["requests"]["put"] + 1, "the index of the archive"
    more = plan["cost"]["egress"][0]["bytes"] - loose["cost"]["egress"][0]["bytes"]
    assert more == sum(call.size_bytes for call in headers)
