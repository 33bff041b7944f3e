"""The native engine: copies a batch of objects in the cheapest way for each, and verifies each.

The way of an object::

    the stores are of one provider and server             the server copies it   `server_side`
    larger than an upload part, the target has uploads    in parts               `large_object`
    anything else                                         through this machine   `object`
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial

from larder.copy.allowance import CopyLimits
from larder.copy.large_object import LargeObject
from larder.copy.object import copy_content, copy_object
from larder.copy.proof import CopiedObject, ObjectCopy, adopt, known_md5
from larder.copy.server_side import ServerSide
from larder.copy.threads import Pace, work_off
from larder.errors import Failure, FatalError, LarderError, ObjectError, RetryableError
from larder.progress import Progress
from larder.store.base import PIECE_BYTES, ObjectInfo, Store
from larder.store.etags import read_listed
from larder.store.interrupt import INTERRUPTED, Interrupt, interrupted_by

_LEAVE_SECONDS = 2.0
_SMALL_BYTES = PIECE_BYTES // 2
"""Objects of this size arrive as a whole with their heads."""
_FIRST_SECONDS = 2.0
"""Seconds that a store may fail for an object before other objects have their turn."""
_TOGETHER_BYTES = 2 << 20
_TOGETHER = 32
"""Maximum number of small objects that a thread takes at once."""

_Work = Callable[[], object]


def copy_batch(
    source: Store,
    target: Store,
    objects: Iterable[ObjectInfo],
    *,
    prefix: str,
    limits: CopyLimits,
    progress: Progress,
    copied: Callable[[CopiedObject], None],
    failed: Callable[[str], None] = lambda key: None,
    ended: Callable[[], None] = lambda: None,
) -> tuple[Failure, ...]:
    """Copy objects, several at a time; return the failures, ordered by key.

    Too many failures are ``run.failed``. When the batch is stopped, requests in progress are ended.

    ``copied`` is called for every object that was copied and verified before the batch was stopped,
    by the thread that copied it, before anything else. ``failed`` is called with the key of every
    other object that was tried. ``ended`` is called after each step; its errors stop the batch.
    """
    interrupt = Interrupt()
    batch = _Batch(source, target, prefix, limits, progress, copied, failed, interrupt)

    def work(step: _Work) -> None:
        with interrupt.active():
            step()
        ended()

    pace = Pace.begin(limits.concurrency, ahead=batch.takes_several)
    steps: Iterable[_Work] = batch.steps(objects, pace)
    try:
        while steps:
            work_off(steps, work, pace, awake=batch.advance, stop=interrupt.stop)
            batch.advance()
            pace = Pace.begin(limits.concurrency)
            steps = [*batch.again(pace), *batch.server_side.checks()]
    except BaseException:
        batch.leave()
        raise
    batch.check_available()
    return limits.failures.failures


class _Patience(Interrupt):
    """The signal of a batch, and the patience that the batch has left when a call begins."""

    def __init__(self, batch: _Batch) -> None:
        super().__init__(batch.interrupt)
        self._batch = batch

    def patience_seconds(self, elapsed_seconds: float) -> float:
        return self._batch.patience_seconds(elapsed_seconds)


@dataclass(eq=False)
class _Batch:
    """The objects of one batch; a thread runs each of their steps."""

    source: Store
    target: Store
    prefix: str
    limits: CopyLimits
    progress: Progress
    copied: Callable[[CopiedObject], None]
    failed: Callable[[str], None]
    interrupt: Interrupt

    def __post_init__(self) -> None:
        source, target, limits = self.source, self.target, self.limits
        self.advance = partial(self.progress.advance, "mirror")
        self._brief = Interrupt(self.interrupt, _FIRST_SECONDS)
        self._again: deque[_Work] = deque()
        self._failing_since = math.inf
        self._all_begun = False
        reads_ahead = source.features.reads_ahead and target.features.local_path
        self.takes_several = reads_ahead and not limits.adopt
        self._most_bytes = min(_TOGETHER_BYTES, limits.budget.total_bytes // 16)
        self._large: set[LargeObject] = set()
        self._unavailable: RetryableError | None = None
        self._copied_count = 0
        self.server_side = ServerSide(
            source, target, self.prefix, limits, self._done, self._stream_now, self._attempt
        )

    def steps(self, objects: Iterable[ObjectInfo], pace: Pace) -> Iterator[_Work]:
        """Yield the steps of all objects: one per part if large, one for several if small."""
        for number, infos in enumerate(self._together(objects)):
            info = infos[0]
            if not number and len(infos) == 1:
                pace.widen()  # probably none of the objects is small
            if len(infos) > 1:
                yield partial(self._copy_each, infos, pace.ahead)
            elif self.limits.adopt:
                yield partial(self._try, info, partial(self._adopt, info))
            elif not self.server_side.possible:
                yield from self._streamed(info)
            elif self.server_side.in_parts(info):
                yield from self._in_parts(info, by_server=True)
            else:
                yield partial(self._try, info, partial(self.server_side.copy, info))
            yield from self.server_side.due_checks()
            yield from self.again(pace)
        self._all_begun = True

    def _together(self, objects: Iterable[ObjectInfo]) -> Iterator[list[ObjectInfo]]:
        """Group objects for a step: small ones whose etags prove all that a directory keeps."""
        group: list[ObjectInfo] = []
        group_bytes = 0
        for info in objects:
            small = info.size_bytes <= min(_SMALL_BYTES, self._most_bytes)
            proved = known_md5(self.source, info.etag) is not None
            if not (self.takes_several and small and proved):
                yield [info]
                continue
            group.append(info)
            group_bytes += info.size_bytes
            if len(group) == _TOGETHER or group_bytes > self._most_bytes:
                yield group
                group, group_bytes = [], 0
        if group:
            yield group

    def _streamed(self, info: ObjectInfo) -> Iterator[_Work]:
        if info.size_bytes <= self.limits.part_bytes:
            yield partial(self._try, info, partial(self._copy, info))
        elif not self.target.features.uploads:
            yield partial(self._attempt, info, partial(self._copy, info))
        else:
            yield from self._in_parts(info)

    def _in_parts(self, info: ObjectInfo, *, by_server: bool = False) -> Iterator[_Work]:
        large = LargeObject(self._way(info), self.limits, self.advance, by_server=by_server)
        self._large.add(large)
        yield partial(self._attempt, info, partial(self._large_step, large, large.begin))
        for _ in large.numbers:
            yield partial(self._attempt, info, partial(self._large_step, large, large.copy_part))

    def _large_step(self, large: LargeObject, step: Callable[[], CopiedObject | None]) -> None:
        try:
            copy = step()
        except LarderError as error:
            if error.code == INTERRUPTED:
                raise
            self._large.discard(large)
            if not large.by_server:
                raise
            self.server_side.fault()
            self._stream_now(large.way.info)
            return
        if copy is not None:
            self._large.discard(large)
            self._done(large.way.info, copy, large.way.info.size_bytes if large.moved_bytes else 0)

    def leave(self) -> None:
        """Leave uploads in progress to the next run, or abort them; the rest are orphans."""
        if not self._large:
            return

        def end() -> None:
            for large in list(self._large):  # after a second Ctrl-C, threads go on
                with suppress(LarderError):
                    large.end(keep=True)

        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        thread.join(_LEAVE_SECONDS)

    def check_available(self) -> None:
        """Raise the error of a store that failed for every object."""
        codes = {failure.code for failure in self.limits.failures.failures}
        if self._unavailable and self._copied_count == 0 and codes == {self._unavailable.code}:
            raise self._unavailable

    def _stream_now(self, info: ObjectInfo) -> None:
        """Copy an object through this machine, all of it in this thread."""
        for step in self._streamed(info):
            step()

    def _adopt(self, info: ObjectInfo) -> None:
        """Keep the copy of another program if it is the right object; otherwise copy the object."""
        copy = adopt(self._way(info), self.limits.verify)
        if copy is None:
            self._stream_now(info)
        else:
            self._done(info, copy)

    def _copy(self, info: ObjectInfo) -> None:
        self._done(info, copy_object(self._way(info), self.limits, self.advance))

    def _copy_each(self, infos: Sequence[ObjectInfo], ahead: int) -> None:
        """Copy objects, with ``ahead`` requests in progress."""
        objects = [(info.key, info.size_bytes, info.etag) for info in infos]
        self.advance()
        with (
            self.limits.budget.holding(2 * sum([info.size_bytes for info in infos])),
            closing(self.source.get_each(objects, ahead)) as contents,
        ):
            fails = False
            for info in infos:
                again = partial(self._copy, info)
                if fails:  # queued, the others do not wait for each other
                    self._again.appendleft(partial(self._try, info, again))
                else:
                    fails = self._try(info, partial(self._copy_next, info, contents), again)

    def _copy_next(self, info: ObjectInfo, contents: Iterator[bytes]) -> None:
        data = next(contents, None)
        if data is None:  # an object before it could not be read
            data = read_listed(self.source, info.key, info.size_bytes, info.etag)
        self._done(info, copy_content(self._way(info), data, None, self.limits))

    def _way(self, info: ObjectInfo) -> ObjectCopy:
        return ObjectCopy(self.source, info, self.target, self.prefix + info.key)

    def _done(self, info: ObjectInfo, copy: CopiedObject, moved_bytes: int = 0) -> None:
        if interrupt := interrupted_by():  # copies that end after a stop are made again
            interrupt.check()
        self._copied_count += 1
        self._failing_since = math.inf
        self.copied(copy)
        self.limits.failures.succeeded()
        self.advance(objects=1, bytes=info.size_bytes - moved_bytes)

    def _try(self, info: ObjectInfo, step: _Work, again: _Work | None = None) -> bool:
        """Run a step; if a store fails for it, queue the step, or ``again``, and return True."""
        try:
            with self._brief.active():
                step()
        except RetryableError as error:
            self._note_failing(error)
            self._again.append(partial(self._attempt, info, again or step))
            return True
        except ObjectError as error:
            self._fails(info, error)
        return False

    def again(self, pace: Pace) -> Iterator[_Work]:
        """Yield the steps for which a store failed, to be run several at a time."""
        while self._again:
            pace.widen()
            yield self._again.popleft()

    def _attempt(self, info: ObjectInfo, step: _Work) -> None:
        """Run a step with patience, less if a store has failed for all objects for some time."""
        try:
            with _Patience(self).active():
                step()
        except (ObjectError, RetryableError) as error:
            if isinstance(error, RetryableError):
                self._note_failing(error)
            self._fails(info, error)

    def _note_failing(self, error: RetryableError) -> None:
        # Not since the step began: it may have waited for memory, or moved bytes for an hour.
        since = time.monotonic() - error.lasted_seconds
        self._failing_since = min(self._failing_since, since)

    def patience_seconds(self, elapsed_seconds: float) -> float:
        began = time.monotonic() - elapsed_seconds
        return self.limits.give_up_seconds - max(0.0, began - self._failing_since)

    def _fails(self, info: ObjectInfo, error: ObjectError | RetryableError) -> None:
        """Record a failed object, and raise an error if there are too many."""
        failure = Failure.of(info.key, error)
        failures = self.limits.failures
        failures.failed(failure, is_last=self._all_begun)
        self.failed(info.key)
        if isinstance(error, RetryableError):
            self._unavailable = error
        if failures.reason:
            if isinstance(error, RetryableError):
                raise error
            hint = "what was copied is recorded; find the cause, then run again"
            raise FatalError("run.failed", failures.reason, hint=hint) from error
