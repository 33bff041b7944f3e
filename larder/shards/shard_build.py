"""Writes one shard: read ahead, check, append, hash on the fly, commit if it is complete."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import islice

from larder.errors import Failure, Failures, FatalError
from larder.progress import NullProgress, Progress
from larder.shards.formats.format_interface import ShardFormat
from larder.shards.hashed_output import HashedOutput
from larder.shards.images.check import PLAIN, FormTally, ImageRules
from larder.shards.index_rows import IndexRows
from larder.shards.model import NO_ROWS, PlannedSample, ShardPlan, ShardResult, WrittenFile
from larder.shards.old_shards import OldShards, PackedParts
from larder.shards.reading.fetch import (
    UNDECODABLE,
    Contents,
    Fetched,
    fetch,
    fetch_together,
    known_failure,
)
from larder.shards.reading.large import UnreadablePartError, check_streamed, transformed_sample
from larder.shards.reading.readahead import Lot, Reads, lots, read_ahead
from larder.store.base import Readable, Writer

STAGE = "shard"
"""The stage whose progress is reported: counts samples, and the bytes of shards."""

_REPORT_SAMPLES = 256
_REPORT_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class ShardBuild:
    """Inputs and rules for building the shards of a batch.

    ``old_shards`` may be None if no sample is packed. The caller starts and finishes ``progress``,
    because only the caller knows all shards.
    """

    source: Readable
    reads: Reads
    old_shards: OldShards | None = None
    rules: ImageRules = PLAIN
    hash_beside: bool = True
    progress: Progress = field(default_factory=NullProgress)


def build_shard(
    plan: ShardPlan,
    samples: Iterable[PlannedSample],
    shard_format: ShardFormat,
    open_writer: Callable[[str], Writer],
    build: ShardBuild,
) -> ShardResult:
    """Write one shard, of the first ``plan.rows`` samples, and commit it only if it is complete.

    The bytes depend on the samples alone, not on the limits or the places of the samples. Every
    object is read, so that all failures are reported at once. After the first failure, or if all
    samples were left out, nothing more is written and the writers are aborted.

    Memory: the budget of ``reads`` (without threads: an eighth), some thousand rows of the index,
    and the memory of format and writers. Each file takes three blocks of 1 MiB (one without
    ``hash_beside``). Never raises `ObjectError`.
    """
    names = shard_format.file_names(plan.name)
    with ExitStack() as stack:
        writers = [stack.enter_context(open_writer(name)) for name in names]
        outputs = [
            stack.enter_context(HashedOutput(writer, beside=build.hash_beside))
            for writer in writers
        ]
        building = _Building(plan, shard_format, outputs, build)
        stack.callback(building.shard.close)
        building.add(islice(samples, plan.rows))
        skipped, failures = building.skipped, building.failures
        files: tuple[WrittenFile, ...] = ()
        rows = NO_ROWS
        if building.samples and not failures.count:
            rows = building.shard.finish()
            sums = [output.finish() for output in outputs]
            sizes = [output.bytes for output in outputs]
            if building.sizes_known and not skipped.count and sum(sizes) != plan.bytes:
                message = f"the shard has {sum(sizes):,} bytes, and not {plan.bytes:,} as planned"
                raise FatalError("run.internal", message, where=plan.name)
            # Commit the first file last: if it exists, so do the others.
            etags = [writer.commit().etag for writer in reversed(writers)][::-1]
            files = tuple(map(WrittenFile, names, sizes, sums, etags))
    return ShardResult(
        plan.split,
        plan.name,
        files,
        rows,
        skipped.finish(),
        tuple(failures.shown),
        failures.count,
        building.forms.notes() if files else (),
    )


class _Building:
    """A shard being built, with its samples, skipped samples and failures."""

    def __init__(
        self,
        plan: ShardPlan,
        shard_format: ShardFormat,
        outputs: Sequence[HashedOutput],
        build: ShardBuild,
    ) -> None:
        self.shard = shard_format.writer(outputs, plan)
        self.sizes_known = shard_format.sizes_known and build.rules.transform is None
        self.samples = 0
        self.skipped = IndexRows()
        self.failures = Failures()
        self.forms = FormTally(build.rules.decoders)
        self._plan = plan
        self._outputs = outputs
        self._build = build
        self._source, self._rules = build.source, build.rules
        self._written = self._reported_samples = self._reported_bytes = 0

    def add(self, samples: Iterable[PlannedSample]) -> None:
        tried, reads = 0, self._build.reads
        waiting = lots(samples, reads.whole_bytes, together=reads.together)
        ahead = read_ahead(waiting, self._read, lambda lot: lot.held_bytes or 0, reads)
        with closing(ahead) as readings:
            for lot, contents in readings:
                self._add_all(lot, contents)
                tried += len(lot.samples)
                written = self._outputs[0].bytes
                many = tried - self._reported_samples >= _REPORT_SAMPLES
                if many or written - self._written > _REPORT_BYTES:
                    self._written = written
                    self._report(tried)
        self._report(tried)

    def _read(self, lot: Lot) -> Contents | Sequence[Fetched | None]:
        first, *others = lot.samples
        if lot.held_bytes is None:
            return (None,)
        if first.packed is not None:
            return self._old.fetch(lot.samples, self._rules)
        if others:
            return fetch_together(self._source, lot.samples, self._rules)
        return (fetch(self._source, first, self._rules),)

    @property
    def _old(self) -> OldShards:
        assert self._build.old_shards is not None, "a packed sample needs the old shards"
        return self._build.old_shards

    def _add_all(self, lot: Lot, contents: Contents | Sequence[Fetched | None]) -> None:
        if isinstance(contents, Contents):
            least = self.shard.least_together
            if least is not None and len(lot.samples) >= least:
                self.shard.append_all(lot, contents)
                self.samples += len(lot.samples)
                return
            contents = contents.of_each(lot.samples)
        for sample, fetched in zip(lot.samples, contents, strict=True):
            self._add(sample, fetched)

    def _add(self, sample: PlannedSample, fetched: Fetched | None) -> None:
        if fetched is not None:
            self._add_fetched(sample, fetched)
        elif sample.bad is not None:
            self._note(sample, [known_failure(sample)])
        elif sample.packed is None and self._rules.transform is not None:
            self._add_transformed(sample)
        elif sample.packed is None:
            self._add_streamed(sample, self._source, self._rules)
        elif sample.packed.in_ranges:
            parts = PackedParts(self._old.store, sample)
            rules = self._old.rules_for(sample, self._rules)
            if rules.validate != "none" or rules.forms:
                parts.verify()  # damage must not look like a bad image
            self._add_streamed(parts.sample, parts, rules, planned=sample)
        else:
            self._add_fetched(sample, self._old.read(sample, self._rules))

    def _add_fetched(self, sample: PlannedSample, fetched: Fetched) -> None:
        if fetched.failures:
            self._note(sample, fetched.failures)
        else:
            self._appended(self.shard.append(sample, fetched.bodies), sample, fetched)

    def _add_transformed(self, sample: PlannedSample) -> None:
        rules = self._rules
        stored, source, failures = transformed_sample(self._source, sample, rules)
        if failures:
            self._note(sample, failures)
        else:
            # The transform has decoded images, but no other parts.
            done = rules if rules.decoders.uses else rules._replace(validate="none")
            self._add_streamed(stored, source, done, planned=sample)

    def _add_streamed(
        self,
        sample: PlannedSample,
        source: Readable,
        rules: ImageRules,
        planned: PlannedSample | None = None,
    ) -> None:
        """Add a sample; ``planned`` is the plan of a sample that was transformed since."""
        checked = check_streamed(source, sample, rules)
        if checked.failures:
            self._note(planned or sample, checked.failures)
        else:
            try:
                failure = self.shard.append_streamed(sample, source)
            except UnreadablePartError as error:
                failure = error.failure
            self._appended(failure, sample, checked)

    def _appended(self, failure: Failure | None, sample: PlannedSample, fetched: Fetched) -> None:
        if failure is not None:
            self._note(sample, [failure])
            return
        self.samples += 1
        for part in sample.parts if fetched.forms else ():
            if form := fetched.forms.get(part.ext):
                self.forms.add(part.ext, part.key, form)

    def _note(self, sample: PlannedSample, failures: list[Failure]) -> None:
        if self._rules.skip and all(failure.code == UNDECODABLE for failure in failures):
            self.skipped.add_bad(sample, failures[0].message)
        else:
            self.failures.add(*failures)
            for output in self._outputs:
                output.discards = True

    def _report(self, tried: int) -> None:
        # If sizes are estimates, progress adds up to the planned bytes.
        size_bytes = self._plan.bytes * tried // self._plan.rows
        if self.sizes_known:
            size_bytes = sum(output.bytes for output in self._outputs)
        self._build.progress.advance(
            STAGE, objects=tried - self._reported_samples, bytes=size_bytes - self._reported_bytes
        )
        self._reported_samples, self._reported_bytes = tried, size_bytes
