"""Samples are read again after a read that was stopped."""

import pytest
from pipeline_lab import directory_lab

import larder
from larder.errors import FatalError
from larder.shards.formats.recordio import MAGIC, ImageRecordReader


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
