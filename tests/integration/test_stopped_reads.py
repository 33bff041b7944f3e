"""Requests of samples, which threads make, end with the work of their caller."""

import os

import pytest
from pipeline_lab import directory_lab

import larder
from larder.errors import FatalError
from larder.readers import segment
from larder.readers.segment import Span
from larder.readers.split import THREADS
from larder.shards.formats.recordio import MAGIC, ImageRecordReader
from larder.store.interrupt import Interrupt, interrupted_by
from larder.versions.index import SegmentIndex
from tests.support.errors import larder_error


@pytest.mark.parametrize(("owner", "name"), [(Span, "read"), (SegmentIndex, "_load")])
def test_a_stop_reaches_all_requests_of_a_batch(tmp_path, monkeypatch, owner, name):
    lab = directory_lab(
        tmp_path,
        {f"a/{number}.bin": b"%d" % number for number in range(4)},
        splits={"train": "**"},
        cache=None,
        validate="none",
        shards={"samples_per_shard": 1},
    )
    lab.prepare()
    seen, read = [], getattr(owner, name)

    def noted(*arguments):
        seen.append(interrupted_by())
        return read(*arguments)

    monkeypatch.setattr(owner, name, noted)
    monkeypatch.setattr(SegmentIndex, "_worth_mapping", lambda *_: False)  # as in a bucket
    interrupt = Interrupt()
    with interrupt.active():
        larder.open(f"{lab.storage}/larder/d").samples_of("train").batch(range(4))
    assert seen
    assert set(seen) == {interrupt}


@pytest.mark.parametrize("form", ["webdataset", "recordio"])
def test_a_stop_ends_a_batch_from_a_directory_too(tmp_path, form):
    fields = {"splits": {"train": "**"}, "cache": None, "validate": "none"}
    lab = directory_lab(tmp_path, {"a/0.bin": MAGIC}, **fields, shards={"format": form})
    lab.prepare()
    samples, interrupt = larder.open(f"{lab.storage}/larder/d").samples_of("train"), Interrupt()
    interrupt.stop()
    with interrupt.active(), pytest.raises(FatalError):
        samples.batch([0])


def test_a_stop_ends_the_reading_of_a_file_between_two_parts(tmp_path, monkeypatch):
    objects = {f"a/{number:02}.bin": b"%d" % number * 10_000 for number in range(60)}
    fields = {"splits": {"train": "**"}, "cache": None, "validate": "none"}
    lab = directory_lab(tmp_path, objects, **fields, shards={"samples_per_shard": 60})
    lab.prepare()
    samples, interrupt = larder.open(f"{lab.storage}/larder/d").samples_of("train"), Interrupt()
    samples[:]
    monkeypatch.setattr(segment, "_EXACT_BYTES", 0)
    pread, reads = os.pread, []

    def stopping(*arguments):
        interrupt.stop()
        reads.append(arguments)
        return pread(*arguments)

    monkeypatch.setattr(os, "pread", stopping)
    with interrupt.active(), larder_error("run.interrupted"):
        samples.batch(range(60))
    assert 1 <= len(reads) <= THREADS


def test_a_span_of_a_large_batch_is_short(tmp_path, monkeypatch):
    """Ctrl-C in a thread that calls `batch` waits for the spans in progress."""
    monkeypatch.setattr(segment, "_EXACT_BYTES", 0)
    monkeypatch.setattr(segment, "SPAN_BYTES", 50_000)
    objects = {f"a/{number:02}.bin": b"%d" % (number % 10) * 20_000 for number in range(60)}
    fields = {"splits": {"train": "**"}, "cache": None, "validate": "none"}
    lab = directory_lab(tmp_path, objects, **fields, shards={"samples_per_shard": 60})
    lab.prepare()
    seen, read = [], Span.read

    def noted(span, *arguments):
        seen.append(sum(part.length for part in span.ranges))
        return read(span, *arguments)

    monkeypatch.setattr(Span, "read", noted)
    larder.open(f"{lab.storage}/larder/d").samples_of("train").batch(range(60))
    assert max(seen) < 100_000


def test_samples_are_read_again_after_a_stop_midway(tmp_path, monkeypatch):
    """The reader of a format goes on in its shard, and only forwards."""
    objects = {f"a/{number}.bin": 2 * MAGIC for number in range(4)}
    fields = {"splits": {"train": "**"}, "cache": None, "validate": "none"}
    lab = directory_lab(tmp_path, objects, **fields, shards={"format": "recordio"})
    lab.prepare()
    samples = larder.open(f"{lab.storage}/larder/d").samples_of("train")
    read = ImageRecordReader.read

    def stopped(reader, sample, parts=None):
        read(reader, sample, parts)
        raise FatalError("run.interrupted", "stopped")

    samples[0]
    with monkeypatch.context() as patch:
        patch.setattr(ImageRecordReader, "read", stopped)
        with pytest.raises(FatalError):
            samples[1:]
    assert [sample.parts["bin"] for sample in samples[1:]] == [2 * MAGIC] * 3
