"""Writing one shard: read ahead, check, append, hash on the way, commit if it is whole."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from itertools import islice
from typing import Literal

from larder.errors import Failure
from larder.progress import NullProgress, Progress
from larder.shards.fetch import UNDECODABLE, Fetched, check_streamed, fetch, sample_bytes
from larder.shards.images import Validation
from larder.shards.model import NO_ROWS, Sample, ShardPlan, ShardResult
from larder.shards.output import HashedOutput
from larder.shards.readahead import Reads, read_ahead
from larder.shards.webdataset import TarShard
from larder.store.base import Readable, Writer

__all__ = ["STAGE", "OnBadSample", "build_shard"]

STAGE = "shard"
"""The stage whose progress is told: samples count as objects, and the shards' bytes as bytes."""

OnBadSample = Literal["fail", "skip"]

_TELL_SAMPLES = 256
_TELL_BYTES = 4 << 20


def build_shard(
    plan: ShardPlan,
    samples: Iterable[Sample],
    source: Readable,
    writer: Writer,
    reads: Reads,
    *,
    validate: Validation = "header",
    on_bad_sample: OnBadSample = "fail",
    progress: Progress | None = None,
) -> ShardResult:
    """Write one shard, and commit it only if it is whole.

    The bytes depend on the samples alone, not on the limits. Each object's etag and size are
    checked against the plan. Every object of the shard is tried, so that all failures are
    reported at once; after the first nothing more is written, and the writer is aborted, as it is
    if every sample was left out.

    Memory: the budget of ``reads`` (without threads: one sample of an eighth of it), three blocks
    of 1 MiB, the index of some 100 bytes per part, and what ``writer`` holds.

    Args:
        plan: What to write.
        samples: The next samples of the sample order; ``plan.rows`` of them are taken.
        source: Where their objects are.
        writer: Where the shard goes; used up when this returns or raises.
        reads: How far to read ahead.
        validate: How images are checked.
        on_bad_sample: Whether a sample with an undecodable image fails the shard or is left out.
            An object that is missing, changed or unreadable fails it in any case.
        progress: Told what advances in `STAGE`; its start and finish are for who knows all shards.

    Raises:
        LarderError: Not `ObjectError`: the store itself failed.
    """
    with writer, HashedOutput(writer) as output:
        building = _Building(source, output, validate, on_bad_sample, progress or NullProgress())
        building.add(islice(samples, plan.rows), reads)
        return _finish(plan, building, output, writer)


def _finish(
    plan: ShardPlan, building: _Building, output: HashedOutput, writer: Writer
) -> ShardResult:
    omitted, failures = tuple(building.omitted), tuple(building.failures)
    if failures or not output.bytes:
        return ShardResult(plan.split, plan.name, 0, "", NO_ROWS, omitted, failures)
    rows, sha256 = building.shard.finish()
    assert omitted or output.bytes == plan.bytes, "a shard is as long as planned"
    info = writer.commit()
    return ShardResult(plan.split, plan.name, output.bytes, sha256, rows, omitted, etag=info.etag)


class _Building:
    """One shard being built: what went into it, what was left out, what failed."""

    def __init__(
        self,
        source: Readable,
        output: HashedOutput,
        validate: Validation,
        on_bad_sample: OnBadSample,
        progress: Progress,
    ) -> None:
        self.shard = TarShard(output)
        self.omitted: list[Failure] = []
        self.failures: list[Failure] = []
        self._source = source
        self._output = output
        self._validate = validate
        self._skip = on_bad_sample == "skip"
        self._progress = progress
        self._told_bytes = 0

    def add(self, samples: Iterable[Sample], reads: Reads) -> None:
        whole_bytes = reads.whole_bytes

        def read(sample: Sample) -> Fetched | None:
            if sample_bytes(sample) > whole_bytes:
                return None
            return fetch(self._source, sample, self._validate, skip=self._skip)

        def held_bytes(sample: Sample) -> int:
            size_bytes = sample_bytes(sample)
            return 0 if size_bytes > whole_bytes else size_bytes

        untold = 0
        with closing(read_ahead(samples, read, held_bytes, reads)) as readings:
            for sample, fetched in readings:
                if fetched is None:
                    self._add_streamed(sample)
                else:
                    self._add_fetched(sample, fetched)
                untold += 1
                if untold == _TELL_SAMPLES or self._output.bytes - self._told_bytes > _TELL_BYTES:
                    self._tell(untold)
                    untold = 0
        self._tell(untold)

    def _add_fetched(self, sample: Sample, fetched: Fetched) -> None:
        if fetched.failures:
            self._note(fetched.failures)
        elif not self.failures:
            self.shard.append(sample, fetched.bodies)

    def _add_streamed(self, sample: Sample) -> None:
        failures = check_streamed(self._source, sample, self._validate, skip=self._skip)
        if failures:
            self._note(failures)
        elif not self.failures and (failure := self.shard.append_streamed(sample, self._source)):
            self.failures.append(failure)

    def _note(self, failures: list[Failure]) -> None:
        if self._skip and all(failure.code == UNDECODABLE for failure in failures):
            self.omitted += failures
        else:
            self.failures += failures

    def _tell(self, samples: int) -> None:
        self._progress.advance(STAGE, objects=samples, bytes=self._output.bytes - self._told_bytes)
        self._told_bytes = self._output.bytes
