"""Records in progress: images decoded by threads, in order, within a bound on memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from larder.cache.images import Picture
from larder.cache.record import Array, Value

__all__ = ["Making", "in_order"]

_AHEAD = 4


class Making:
    """A record in progress: the values that exist already, and the images to decode.

    Attributes:
        values: By field.
        pictures: By field, each with the number of channels to decode to.
        source_bytes: Total length of the parts of the record.
    """

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.pictures: dict[str, tuple[Picture, int]] = {}
        self.source_bytes = 0
        self._arrays: dict[str, Future[Array]] = {}

    @property
    def held_bytes(self) -> int:
        """Bytes in memory until the record is written."""
        decoded = sum(picture.form.bytes for picture, _ in self.pictures.values())
        return self.source_bytes + decoded

    @property
    def done(self) -> bool:
        """Whether all images are decoded."""
        return all(array.done() for array in self._arrays.values())

    def begin(self, pool: ThreadPoolExecutor) -> None:
        """Start decoding the images."""
        for name, (picture, channels) in self.pictures.items():
            self._arrays[name] = pool.submit(picture.array, channels)

    def result(self) -> dict[str, Value]:
        """All values; waits for the images.

        Raises:
            ObjectError: ``sample.undecodable``.
        """
        return {**self.values, **{name: array.result() for name, array in self._arrays.items()}}


def in_order(records: Iterable[Making], threads: int, window_bytes: int) -> Iterator[Making]:
    """The records in order, started ahead of the consumer.

    Args:
        records: Records that have not been started.
        threads: Number of images decoded at once.
        window_bytes: Maximum bytes of records in progress; a larger record is processed alone.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="larder-decode")
    waiting: deque[Making] = deque()
    held_bytes = 0
    try:
        for record in records:
            while waiting and (
                held_bytes + record.held_bytes > window_bytes
                or len(waiting) >= _AHEAD * threads
                or waiting[0].done
            ):
                held_bytes -= waiting[0].held_bytes
                yield waiting.popleft()
            record.begin(pool)
            held_bytes += record.held_bytes
            waiting.append(record)
        while waiting:
            yield waiting.popleft()
    finally:
        pool.shutdown(cancel_futures=True)
