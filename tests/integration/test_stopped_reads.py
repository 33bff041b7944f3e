"""Requests of samples, which threads make, end with the work of their caller."""

from pipeline_lab import directory_lab

import larder
from larder.readers.segment import Span
from larder.store.interrupt import Interrupt, interrupted_by


def test_a_stop_reaches_all_requests_of_a_batch(tmp_path, monkeypatch):
    lab = directory_lab(
        tmp_path,
        {f"a/{number}.bin": b"%d" % number for number in range(4)},
        splits={"train": "**"},
        cache=None,
        validate="none",
        shards={"samples_per_shard": 1},
    )
    lab.prepare()
    seen, read = [], Span.read

    def noted(span, store, key):
        seen.append(interrupted_by())
        return read(span, store, key)

    monkeypatch.setattr(Span, "read", noted)
    interrupt = Interrupt()
    with interrupt.active():
        larder.open(f"{lab.storage}/larder/d").samples_of("train").batch(range(4))
    assert seen == [interrupt] * 4
