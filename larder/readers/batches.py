"""Batches: what training gets of several samples at once, decoded where it asks for that."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from larder.errors import ObjectError
from larder.machine import usable_cores
from larder.packages import is_installed, require_module
from larder.readers.samples import Sample
from larder.readers.schedule import invalid, whole
from larder.samples.images import (
    BadImageError,
    decoded,
    decoding,
    discarding,
    form_of,
    is_image,
    load,
    open_image,
)
from larder.samples.naming import LABEL_EXT

if TYPE_CHECKING:
    from PIL import Image

Array = np.ndarray[Any, Any]

Batch = dict[str, Any]
"""By name, an array or a list with one value for each sample.

``key`` is a list of strings. ``label`` is an int64 array: a list with None if some samples have no
label, absent if none has one. Each part is under its extension: a list of bytes, with None for
samples without it, until it is decoded. The part ``cls`` is left out if there are labels.
"""

KEY: Final = "key"
LABEL: Final = "label"

_HINT: Final = "replace it at the source and prepare again, or read with on_error='skip'"
_JPEG: Final = b"\xff\xd8\xff"
_ARRAYS: Final = np.ndarray | np.generic
_ARRAY_BYTES: Final = 1 << 30

MOST_PIXELS: Final = 16_384
"""Of a side of a square that images are scaled to."""


def batch_of(samples: Sequence[Sample]) -> Batch:
    """The batch of some samples, with their parts as they are in the shards."""
    batch: Batch = {KEY: [sample.key for sample in samples]}
    exts = {ext for sample in samples for ext in sample.parts}
    labels = [sample.label for sample in samples]
    if any(label is not None for label in labels):
        batch[LABEL] = labels if None in labels else np.array(labels, np.int64)
        exts.discard(LABEL_EXT)
    for ext in sorted(exts):
        batch[ext] = [sample.parts.get(ext) for sample in samples]
    return batch


@dataclass(frozen=True, slots=True)
class Decoding:
    """What becomes of the parts of a batch. It can be pickled if its functions can.

    Args:
        images: Decode the parts that are images, by their extension, to uint8 arrays of shape
            (height, width, 3): grey is repeated, transparency is dropped. Needs the extra ``jpeg``.
        size: Scale each image so that its shorter side has this many pixels, and keep the square in
            its middle: shape (size, size, 3). JPEGs are decoded to little more than that at once,
            which takes a fraction of the time.
        transforms: Functions by the name of a part. Each is called with one value of the part, by
            several threads at once: an array if it was decoded, else bytes, or what the cache
            has. What it returns takes the value's place. Not called for samples without the part.
        threads: How many samples are decoded at once; None for one per core, of which processes
            that `share_cores` have their part.

    Raises:
        ConfigError: ``config.invalid_value``: ``size`` without ``images``, or not from 1 to 16,384;
            ``config.missing_package``: Pillow is not installed.
    """

    images: bool = False
    size: int | None = None
    transforms: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.size is not None:
            whole("size", self.size, 1, MOST_PIXELS)
            if not self.images:
                raise invalid("only what is decoded has a size", "size", "give decode=True, too")
        if self.images:
            require_module("jpeg", "PIL")

    def __call__(
        self, batch: Batch, on_error: Callable[[ObjectError], None] | None = None
    ) -> Batch:
        """The batch with its parts decoded, by threads.

        The values of a part become one array if they are arrays of one shape and dtype; else they
        are a list.

        Args:
            batch: What `batch_of` or the cache of a split returns; not modified.
            on_error: Called with the error of each sample that cannot be decoded, which is then
                left out of the batch. Without it, the first error is raised.

        Raises:
            ObjectError: ``sample.undecodable`` names the sample and the part. What a function of
                ``transforms`` raises is passed on.
        """
        steps = {name: step for name in batch if (step := self._step(name))}
        if not steps:
            return batch
        count = len(batch[KEY])
        columns = {name: _Column(count) for name in steps}
        pool = _pool(os.getpid(), self.threads or max(1, usable_cores() // _processes))
        errors = list(pool.map(partial(_decode_row, batch, steps, columns), range(count)))
        if not any(errors):
            return batch | {name: column.values() for name, column in columns.items()}
        for error in filter(None, errors):
            if on_error is None:
                raise error
            on_error(error)
        kept = [number for number, error in enumerate(errors) if error is None]
        batch = {name: chosen(values, kept) for name, values in batch.items()}
        return batch | {name: column.values(kept) for name, column in columns.items()}

    def _step(self, name: str) -> _Step | None:
        image = self.images and is_image(name)
        transform = self.transforms.get(name)
        return _Step(image, self.size, transform) if image or transform else None


@dataclass(frozen=True, slots=True)
class _Step:
    """What is done with each value of a part."""

    image: bool
    size: int | None
    transform: Callable[[Any], Any] | None

    def __call__(self, value: Any, where: str) -> Any:
        if value is None:
            return None
        if self.image:
            value = decode_image(value, where, self.size)
        return self.transform(value) if self.transform else value


class _Column:
    """The decoded values of a part, put by several threads.

    The first array decides about shape and dtype: each thread copies those like it to their places
    in one array. There is none if it would be too large for memory, and others may be smaller.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._array: Array | None = None
        self._lock = threading.Lock()
        self._others: dict[int, Any] = {}

    def put(self, number: int, value: Any) -> None:
        if isinstance(value, _ARRAYS) and value.nbytes * self._count <= _ARRAY_BYTES:
            with self._lock:
                if self._array is None:
                    self._array = np.empty((self._count, *value.shape), value.dtype)
            array = self._array
            if (array.shape[1:], array.dtype) == (value.shape, value.dtype):
                array[number] = value
                return
        self._others[number] = value

    def values(self, numbers: Sequence[int] | None = None) -> Any:
        """All values, or those of some samples: one array if they are alike, else a list."""
        array = self._array
        if array is not None and not self._others:
            return array if numbers is None else array[numbers]
        every = range(self._count) if numbers is None else numbers
        values = [
            self._others[n] if array is None or n in self._others else array[n] for n in every
        ]
        alike = {(v.shape, v.dtype) if isinstance(v, _ARRAYS) else None for v in values}
        return np.stack(values) if len(alike) == 1 and None not in alike else values


def _decode_row(
    batch: Batch, steps: Mapping[str, _Step], columns: Mapping[str, _Column], number: int
) -> ObjectError | None:
    """Decode a sample; returns its error, because others may do without the sample."""
    key = batch[KEY][number]
    try:
        for name, step in steps.items():
            columns[name].put(number, step(batch[name][number], f"{key}.{name}"))
    except ObjectError as error:
        return error
    return None


def decode_image(data: bytes | Array, where: str, size: int | None = None) -> Array:
    """The pixels of an image as uint8 (height, width, 3); with ``size``, (size, size, 3).

    Raises:
        ObjectError: ``sample.undecodable``, also for images of more than 8 bits a channel.
    """
    data = bytes(data)
    with decoding(where, _HINT):
        if size and data.startswith(_JPEG) and (pixels := _scaled_jpeg(data, size)) is not None:
            from PIL import Image

            if min(pixels.shape[:2]) == size:
                top, left = ((length - size) // 2 for length in pixels.shape[:2])
                return np.ascontiguousarray(pixels[top : top + size, left : left + size])
            return _square(Image.fromarray(pixels), size)
        return _by_pillow(data, size)


def _by_pillow(data: bytes, size: int | None) -> Array:
    with open_image(io.BytesIO(data)) as image, discarding(image):
        dtype = form_of(image).dtype
        if dtype != "uint8":
            raise BadImageError(f"its elements are {dtype}: decode it with a function of your own")
        if size:
            image.draft("RGB", (size, size))
        load(image)
        if size and image.mode == "RGB":
            return _square(image, size)
        pixels = decoded(image, channels=3)
        if size is None:
            return pixels
        from PIL import Image

        return _square(Image.fromarray(pixels), size)


def _scaled_jpeg(data: bytes, size: int) -> Array | None:
    """A JPEG in the smallest size that libjpeg can decode it to at once, at least ``size``; None if
    Pillow has to decode it: others than grey and YCbCr, damaged ones, or without simplejpeg.
    """
    if not _has_simplejpeg():
        return None
    import simplejpeg

    try:
        pixels: Array = simplejpeg.decode_jpeg(data, "RGB", min_height=size, min_width=size)
    except ValueError:
        return None
    return pixels


@cache
def _has_simplejpeg() -> bool:
    return is_installed("simplejpeg")


def _square(image: Image.Image, size: int) -> Array:
    """The square in the middle of an image, scaled to ``size`` pixels if it has others."""
    from PIL import Image

    width, height = image.size
    side = min(width, height)
    if side == size:
        x, y = (width - size) // 2, (height - size) // 2
        return np.asarray(image.crop((x, y, x + size, y + size)))
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR, box=box))


def chosen(values: Any, numbers: list[int]) -> Any:
    """Some values of a column of a batch."""
    if isinstance(values, np.ndarray):
        return values[numbers]
    return [values[number] for number in numbers]


_processes = 1


def share_cores(processes: int) -> None:
    """Say that so many processes like this one decode on this machine."""
    global _processes
    _processes = processes


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that decode, of this process: those of its parent do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"larder-decode-{process}")
