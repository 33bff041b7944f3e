"""Batches of samples, decoded on request."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Final, NamedTuple, cast

import numpy as np

from larder.cache.fields import field_name
from larder.config.shape import MAX_PIXELS, DecoderUse
from larder.errors import ObjectError
from larder.machine import usable_cores
from larder.readers.epoch_order import Numbers
from larder.readers.image_decoding import MOST_PIXELS, decode_image, decode_mask, load_decoders
from larder.readers.numbers import Array
from larder.readers.schedule import check_columns, check_function, check_list, invalid, whole
from larder.samples.decoders import IMAGES_ONLY, MASK, Decoders
from larder.samples.image_parts import decoding
from larder.samples.indexed import Sample
from larder.samples.naming import LABEL_EXT
from larder.store.interrupt import Interrupt, interrupted_by

Batch = dict[str, Any]
"""Values by name: an array or a list, with one value for each sample.

``key`` is a list of strings. ``label`` is an int64 array; a list with None if some samples have no
label; absent if no sample has a label. A part is named by its extension, or ``part.EXT`` as in a
cache (`larder.cache.fields`). Until decoded, a part is a list of bytes, with None for samples
without the part. The part ``cls`` is left out if there are labels.
"""

Empty = Callable[[tuple[int, ...], Any], Array]
"""Makes an array, as `numpy.empty` does."""

KEY: Final = "key"
LABEL: Final = "label"

_OWN_HINT: Final = (
    "fix the function, as the traceback says; or leave such samples out, with"
    " reading=larder.Reading(on_error='skip')"
)

_ARRAYS: Final = np.ndarray | np.generic
_ARRAY_BYTES: Final = 1 << 30


def batch_of(samples: Sequence[Sample]) -> Batch:
    batch: Batch = {KEY: [sample.key for sample in samples]}
    exts = {ext for sample in samples for ext in sample.parts}
    labels = [sample.label for sample in samples]
    if any(label is not None for label in labels):
        batch[LABEL] = labels if None in labels else np.array(labels, np.int64)
        exts.discard(LABEL_EXT)
    for ext in sorted(exts):
        batch[field_name(ext, "encoded")] = [sample.parts.get(ext) for sample in samples]
    return batch


class Draws(NamedTuple):
    """Seed, epoch and draw numbers, from which the random numbers of samples follow."""

    seed: int
    epoch: int
    numbers: Numbers

    def generator(self, row: int) -> np.random.Generator:
        return np.random.default_rng((self.seed, self.epoch, int(self.numbers[row])))


Map = Callable[[dict[str, Any], np.random.Generator], Mapping[str, Any]]

_Parts = dict[str, list[str]]
"""Candidate parts by the name of a value in a batch; a sample may have one of them."""


@dataclass(frozen=True, slots=True)
class Decoding:
    """Rules for decoding the parts of a batch. Can be pickled if its functions can.

    Args:
        images: Decode the image parts, or the parts with these names, to uint8 arrays of shape
            (height, width, 3): grey is repeated, transparency is dropped. Decoded images are named
            ``image``, ``mask`` or ``image.NAME``, as in a decoded cache. Needs the extra ``jpeg``.
        size: Scale each image so that its shorter side has this many pixels, and keep the square in
            its middle: shape (size, size, 3). JPEGs are decoded directly to little more than this
            size, in a fraction of the time. Masks take the nearest pixels.
        transforms: Functions by the name of a value. Several threads call each at once, with one
            value: a writable array if decoded, else bytes, or the value in the cache. Not called
            for samples without the part.
        columns: The names that a batch has, whatever its samples have. A part may be named by its
            extension, also if it is decoded.
        masks: Extensions of images whose pixels are numbers. Their elements, or the numbers of a
            palette, are kept in shape (height, width, 1).
        decoders: Other rules for the parts that are images or masks.
        max_pixels: Images with more pixels are refused.
        map: As in `larder.readers.data.Data.loader`.

    Raises:
        ConfigError: ``config.invalid_value``: ``size`` without ``images``, or not from 1 to 16,384;
            a string for names; ``config.missing_package``: Pillow is not installed, or simplejpeg
            is, but cannot be imported.
    """

    images: bool | Collection[str] = False
    size: int | None = None
    transforms: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    columns: Sequence[str] | None = None
    masks: Sequence[str] = ()
    decoders: Decoders = IMAGES_ONLY
    map: Map | None = None
    max_pixels: int = MAX_PIXELS

    def __post_init__(self) -> None:
        check_list(self.images, "decode")
        check_list(self.columns, "columns")
        check_list(self.masks, "masks")
        if not isinstance(self.transforms, Mapping):
            raise invalid(f"{self.transforms!r} is no dictionary of functions", "transforms")
        for name, function in self.transforms.items():
            check_function(function, f"transforms of {name}")
        check_function(self.map, "map")
        if self.size is not None:
            whole("size", self.size, 1, MOST_PIXELS)
        for name, value in (("size", self.size), ("masks", self.masks)):
            if value and not self.images:
                raise invalid("it is of what is decoded", name, "give decode=True, too")
        if self.images:
            load_decoders()

    def checked(
        self,
        parts: Collection[str],
        uses: Iterable[DecoderUse] = (),
        max_pixels: int = MAX_PIXELS,
    ) -> Decoding:
        """Return a copy with the rules of a version; refuse names that no sample may have."""
        exts = set(map(part_ext, parts))
        check_columns({*exts, *(ext.rpartition(".")[2] for ext in exts)}, self.masks, "masks")
        masks = (DecoderUse(name, MASK) for name in self.masks)
        decoding = replace(self, decoders=Decoders((*uses, *masks)), max_pixels=max_pixels)
        columns = decoding._columns(parts)
        if not isinstance(self.images, bool):
            check_columns(parts, self.images, "decode")
        check_columns({*columns, *parts}, self.columns or (), "columns")
        check_columns(self.columns or columns, self.transforms, "transforms")
        if self.size is not None and not any(map(decoding._decodes, parts)):
            hint = "leave it out: a decoded cache has its images in the size of the shards"
            raise invalid("no part is an image file that could be scaled", "size", hint)
        return decoding

    @property
    def calls_functions(self) -> bool:
        """Whether the user's functions get values, which they may keep."""
        return bool(self.map or self.transforms)

    def reads(self, parts: Collection[str]) -> set[str]:
        """Return the names in a batch from which values are taken."""
        if self.columns is None:
            return set(parts)
        columns = self._columns(parts)
        return {part for name in self.columns for part in columns.get(name, [name])}

    def __call__(
        self,
        batch: Batch,
        on_error: Callable[[int, ObjectError], None] | None = None,
        draws: Draws | None = None,
        empty: Empty = np.empty,
    ) -> Batch:
        """Decode the parts of a batch, which is not modified, in threads.

        The values of a part become one array, or one tensor of PyTorch, if they are arrays or
        tensors of one shape and dtype; else they are a list. The generators of ``map`` follow from
        ``draws``. The batch leaves out each sample that ``on_error`` gets.

        Raises:
            ObjectError: ``sample.undecodable`` names the sample and the part, also if a function of
                ``transforms`` or ``map`` raises an exception.
            ConfigError: ``config.invalid_value``: a sample has two parts for one name, or ``map``
                returns no dictionary; ``config.missing_package``: an import fails.
        """
        columns = self._columns(batch)
        if self.columns is not None:
            every = columns | {part: [part] for part in batch}
            columns = {name: every.get(name, []) for name in self.columns}
        count = len(batch[KEY])
        made = {
            name: _Column(count, empty)
            for name, parts in columns.items()
            if len(parts) != 1 or self._decodes(parts[0]) or name in self.transforms
        }
        if self.map is not None:
            made = {}
        elif not made and self.columns is None:
            return batch
        drawn = draws or Draws(0, 0, np.arange(count))
        new_column = partial(_Column, count, empty)
        interrupt = interrupted_by() or Interrupt()
        errors: dict[int, Exception] = {}

        def row(number: int) -> None:
            """Decode a sample, or note its error: the batch may do without the sample.

            An error is raised only when no thread writes to the arrays any more.
            """
            try:
                interrupt.check()
                if self.map is not None:
                    self._map_row(batch, columns, made, new_column, drawn, number)
                else:
                    for name, column in made.items():
                        column.put(number, self._value(batch, name, columns[name], number))
            except Exception as error:  # noqa: BLE001 - raised once all samples are decoded
                errors[number] = error

        threads = max(1, _cores() // _processes)
        try:
            list((map if threads == 1 else _pool(os.getpid(), threads).map)(row, range(count)))
            for number in sorted(errors):
                if on_error is None or not isinstance(errors[number], ObjectError):
                    raise errors[number]
                on_error(number, cast(ObjectError, errors[number]))
            kept = [n for n in range(count) if n not in errors] if errors else None
        finally:
            errors.clear()  # else they keep this frame, and with it the batch
        return {
            name: made[name].values(kept) if name in made else chosen(batch[columns[name][0]], kept)
            for name in (columns if self.map is None else made)
        }

    def _columns(self, parts: Collection[str]) -> _Parts:
        columns: _Parts = {}
        for part in parts:
            ext = part_ext(part)
            name = field_name(ext, "decoded", self.decoders) if self._decodes(part) else part
            columns.setdefault(name, []).append(part)
        return columns

    def _decodes(self, part: str) -> bool:
        if isinstance(self.images, bool):
            return self.images and self.decoders.is_image(part_ext(part))
        return part in self.images

    def _map_row(
        self,
        batch: Batch,
        columns: _Parts,
        made: dict[str, _Column],
        column: Callable[[], _Column],
        draws: Draws,
        number: int,
    ) -> None:
        assert self.map is not None, "there is a function"
        key = batch[KEY][number]
        values = {name: self._value(batch, name, columns[name], number) for name in columns}
        sample = {name: value for name, value in values.items() if value is not None}
        with decoding(key, _OWN_HINT, "its function in map fails"):
            mapped: Any = self.map(sample, draws.generator(number))
        if not isinstance(mapped, Mapping):
            message = f"it returned {type(mapped).__name__} for sample {key}"
            raise invalid(message, "map", "return the sample, or another dictionary")
        for name, value in mapped.items():
            if name not in made:
                made.setdefault(name, column())  # another thread may add it meanwhile
            made[name].put(number, value)

    def _value(self, batch: Batch, name: str, parts: Sequence[str], number: int) -> Any:
        given = [part for part in parts if batch[part][number] is not None]
        if not given:
            return None
        key, part, value = batch[KEY][number], given[0], batch[given[0]][number]
        if len(given) > 1:
            hint = "name the parts in columns, the one to decode in decode, or the mask in masks"
            raise invalid(f"sample {key} has several parts for it: {', '.join(given)}", name, hint)
        where = f"{key}.{part}"
        if self._decodes(part):
            decode = decode_mask if self.decoders.is_mask(part_ext(part)) else decode_image
            value = decode(value, where, self.size, self.max_pixels)
        if name not in self.transforms and self.map is None:
            return value
        if isinstance(value, np.ndarray) and not value.flags.writeable:
            value = value.copy()
        if name not in self.transforms:
            return value
        with decoding(where, _OWN_HINT, "its function in transforms fails"):
            return self.transforms[name](value)


def part_ext(part: str) -> str:
    return part.removeprefix("part.")


class _Column:
    """The decoded values of a part, put by several threads.

    The first array decides about shape and dtype: threads copy arrays like it to their places
    in one array. An array too large for memory is not made; later values may be smaller.
    """

    def __init__(self, count: int, empty: Empty) -> None:
        self._count = count
        self._empty = empty
        self._array: Array | None = None
        self._lock = threading.Lock()
        self._others: dict[int, Any] = dict.fromkeys(range(count))

    def put(self, number: int, value: Any) -> None:
        if isinstance(value, _ARRAYS) and value.nbytes * self._count <= _ARRAY_BYTES:
            with self._lock:
                if self._array is None:
                    self._array = self._empty((self._count, *value.shape), value.dtype)
            array = self._array
            if (array.shape[1:], array.dtype) == (value.shape, value.dtype):
                array[number] = value
                self._others.pop(number, None)
                return
        if isinstance(value, np.ndarray) and not value.flags.c_contiguous:
            value = value.copy()  # PyTorch refuses a flipped view
        self._others[number] = value

    def values(self, numbers: Sequence[int] | None = None) -> Any:
        """Return all values, or the values of some samples: one array if alike, else a list."""
        array = self._array
        every = range(self._count) if numbers is None else numbers
        if array is not None and self._others.keys().isdisjoint(every):
            return array if numbers is None else array[numbers]
        values = [
            self._others[n] if array is None or n in self._others else array[n] for n in every
        ]
        torch: Any = sys.modules.get("torch")
        kinds = (_ARRAYS, torch.Tensor) if torch else (_ARRAYS,)
        alike = {(v.shape, v.dtype) if isinstance(v, kinds) else None for v in values}
        if len(alike) != 1 or None in alike:
            return values
        return np.stack(values) if isinstance(values[0], _ARRAYS) else torch.stack(values)


def joined(pieces: Sequence[tuple[Sequence[int], Batch]], empty: Empty = np.empty) -> Batch:
    """Join batches in the order of the given rows; values that a batch does not have are None."""
    if len(pieces) == 1:
        return pieces[0][1]
    order = sorted(row for rows, _ in pieces for row in rows)
    places = {row: place for place, row in enumerate(order)}
    columns: dict[str, _Column] = {}
    for rows, batch in pieces:
        for name, values in batch.items():
            column = columns.setdefault(name, _Column(len(order), empty))
            for row, value in zip(rows, values, strict=True):
                column.put(places[row], value)
    return {name: column.values() for name, column in columns.items()}


def rows_of(batch: Batch) -> list[dict[str, Any]]:
    """Return the samples of a batch, each a dictionary of its values that are not None."""
    rows = zip(*batch.values(), strict=True)
    return [
        {name: value for name, value in zip(batch, row, strict=True) if value is not None}
        for row in rows
    ]


def chosen(values: Any, numbers: list[int] | None) -> Any:
    """Return some values of a column; all values if ``numbers`` is None."""
    if numbers is None:
        return values
    return [values[n] for n in numbers] if isinstance(values, list) else values[numbers]


_processes = 1


def share_cores(processes: int) -> None:
    """Set the number of processes on this machine that decode like this one."""
    global _processes
    _processes = processes


_cores = cache(usable_cores)
"""Counts the cores of this process once: counting reads a dozen files, too many per batch."""


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Return the decoding threads of this process; a parent's threads do not survive a fork."""
    return ThreadPoolExecutor(threads, thread_name_prefix=f"larder-decode-{process}")
