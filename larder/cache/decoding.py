"""Decode images and other parts of records in threads, ahead of their use, in the records' order.

Pillow decodes an image to an array of shape (height, width, channels); `larder.samples.image_parts`
describes the array of each kind of image.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, NamedTuple

from larder.budgets import ByteBudget
from larder.cache.cache_record import Value
from larder.config.shape import MAX_PIXELS, ImageShape
from larder.samples.image_parts import (
    Array,
    decoding,
    discarding,
    form_of,
    load,
    loading_bytes,
    open_image,
)
from larder.samples.pixels import decoded, fitted, fitted_form

if TYPE_CHECKING:
    from PIL import Image


HINT: Final = "fix or exclude it, or use a cache of encoded records"
"""The hint for a part that cannot be decoded."""


class OpenedImage:
    """An image whose header was read; decoding needs ``loading_bytes`` besides the array."""

    def __init__(
        self,
        data: bytes,
        where: str,
        *,
        max_pixels: int = MAX_PIXELS,
        mask: bool = False,
        shape: ImageShape | None = None,
    ) -> None:
        self._where = where
        self._mask = mask
        self._shape = shape
        with decoding(where, HINT):
            image = open_image(data, max_pixels)
            self._image: Image.Image | None = image
            self.form = form_of(image, mask=mask)
            self.loading_bytes = loading_bytes(image)
            if shape:
                self.loading_bytes += 3 * self.form.bytes
                self.form = fitted_form(self.form, shape, mask=mask)

    def array(self, channels: int | None = None) -> Array:
        """Decode the image, once, to shape (height, width, channels), in C order.

        With 3 ``channels``, 8-bit grey values are repeated as red, green and blue.
        """
        image, self._image = self._image, None  # the image is as large as the array
        assert image is not None, "an image is decoded once"
        with decoding(self._where, HINT), discarding(image):
            load(image)
            if self._shape:
                return fitted(image, self._shape, mask=self._mask)
            return decoded(image, channels, mask=self._mask)


_AHEAD = 4


class ToDecode(NamedTuple):
    """A part of a record to decode; ``needed_bytes`` of memory include the arrays."""

    where: str
    needed_bytes: int
    decode: Callable[[], Mapping[str, Array]]


class Making:
    """A record in progress: the values that exist already, and the parts to decode."""

    def __init__(self) -> None:
        self.values: dict[str, Value] = {}
        self.parts: list[ToDecode] = []
        self.source_bytes = 0
        self._decoded: list[Future[Mapping[str, Array]]] = []

    @property
    def held_bytes(self) -> int:
        """Bytes in memory until the record is written, including memory for decoding."""
        return self.source_bytes + sum(part.needed_bytes for part in self.parts)

    @property
    def done(self) -> bool:
        return all(arrays.done() for arrays in self._decoded)

    def begin(self, pool: ThreadPoolExecutor) -> None:
        self._decoded = [pool.submit(part.decode) for part in self.parts]

    def decoded(self) -> Iterator[tuple[str, Array, str]]:
        """Wait for each array; yield field, array and place once, without keeping them."""
        decoded, self._decoded = self._decoded, []
        for part, arrays in zip(self.parts, decoded, strict=True):
            for name, array in arrays.result().items():
                yield name, array, part.where


def in_order(records: Iterable[Making], threads: int, budget: ByteBudget) -> Generator[Making]:
    """Yield records in order, started ahead of the consumer, within a budget.

    A record larger than the budget is processed alone. A record's bytes count from before its start
    until the consumer requests the next record. No build waits for bytes while holding some, so
    files that are built at once cannot block each other for ever.
    """
    pool = ThreadPoolExecutor(threads, thread_name_prefix="larder-decode")
    waiting: deque[tuple[Making, int]] = deque()
    try:
        for record in records:
            while waiting and (len(waiting) >= _AHEAD * threads or waiting[0][0].done):
                yield from _first(waiting, budget)
            while (taken := _take(budget, record.held_bytes, waiting=bool(waiting))) is None:
                yield from _first(waiting, budget)
            waiting.append((record, taken))
            record.begin(pool)
        while waiting:
            yield from _first(waiting, budget)
    finally:
        pool.shutdown(cancel_futures=True)
        for _, taken in waiting:
            budget.release(taken)


def _take(budget: ByteBudget, size_bytes: int, *, waiting: bool) -> int | None:
    """Acquire bytes for one more record; None if a waiting record must be consumed first."""
    return budget.try_acquire(size_bytes) if waiting else budget.acquire(size_bytes)


def _first(waiting: deque[tuple[Making, int]], budget: ByteBudget) -> Iterator[Making]:
    record, taken = waiting.popleft()
    try:
        yield record
    finally:
        budget.release(taken)
