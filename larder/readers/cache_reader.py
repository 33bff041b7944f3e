"""The cache of a split: its files, read as one sequence of records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Any

import numpy as np

from larder.cache.cache_record import Array, Column, empty_columns
from larder.cache.file import CacheFileReader
from larder.cache.schema import KEY, Field, RecordSchema
from larder.errors import DamageError, FatalError
from larder.readers.numbers import checked_numbers, numbers_of
from larder.versions.omitted import Omitted


class CacheReader:
    """The records of one split, in the order of the version's samples.

    The reader may be used by many threads and after a fork, and is pickled as the paths of its
    files.

    Args:
        files: Readers of one or more files, in order.
        omitted: For each file, the records to leave out; none if this is empty.
        schema: The fields to read; by default the fields of all files.
        counts: Number of records of each file; by default the files say it. With ``schema`` and
            ``counts``, a file is not taken from ``files`` before one of its records is read.

    Attributes:
        schema: The fields of every record; a dimension is None where any two records differ.

    Raises:
        FatalError: ``cache.format``: files with incompatible fields.
        DamageError: ``damage.manifest``: records are left out that do not exist.
    """

    def __init__(
        self,
        files: Sequence[CacheFileReader],
        omitted: Sequence[Omitted] = (),
        schema: RecordSchema | None = None,
        counts: Sequence[int] = (),
    ) -> None:
        self._files = files
        self._omitted = tuple(omitted) or (Omitted.none(),) * len(files)
        self._starts = np.cumsum([0, *(counts or map(_count, files, self._omitted))])
        if schema is None:
            join = partial(_joined, where=str(files[0].path))
            schema = reduce(join, (file.schema for file in files))
        self.schema = schema

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: int | slice | Sequence[int] | Array) -> Any:
        """Read the arrays of one record by field; ``key`` is a string. Fields may be absent.

        A slice, or a list of numbers, gives a list of records.

        Raises:
            IndexError: The record does not exist.
            TypeError: A number is not an integer.
            DamageError: ``damage.record``.
        """
        numbers, is_one = numbers_of(index, len(self), "record")
        records = list(map(self._numbered, numbers.tolist()))
        return records[0] if is_one else records

    def batch(
        self,
        indices: Sequence[int] | Array,
        *,
        fields: Sequence[str] | None = None,
        empty: Callable[..., Array] = np.empty,
    ) -> dict[str, Column | list[str]]:
        """Several records at once, in the order of ``indices``: the fastest way to read.

        Args:
            indices: Numbers of records, in any order; duplicates are allowed.
            fields: The fields to return; all if None.
            empty: Makes the arrays, as `numpy.empty` does.

        Returns:
            By field: one array of shape ``(len(indices), *shape)`` if all values of the split have
            the same shape; else a list of arrays, with None for records without the field. ``key``
            is a list of strings.

        Raises:
            IndexError: The record does not exist.
            TypeError: An index that is not an integer, or a mask.
            KeyError: The field does not exist.
            DamageError: ``damage.record``.
        """
        numbers = checked_numbers(indices, len(self), "record")
        columns = empty_columns(self.schema.select(fields), len(numbers), empty)
        homes = self._starts.searchsorted(numbers, side="right") - 1
        for home in sorted(set(homes.tolist())):  # np.unique imports while others may fork
            (rows,) = np.nonzero(homes == home)
            self._files[home].read_into(columns, rows, self._rows(home, numbers[rows]))
        return columns | {KEY: list(map(_text, columns[KEY]))} if KEY in columns else {**columns}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for home, (file, omitted) in enumerate(zip(self._files, self._omitted, strict=True)):
            stops = [*omitted.ranges[:, 0].tolist(), len(file)]
            starts = [0, *omitted.ranges[:, 1].tolist()]
            for start, stop in zip(starts, stops, strict=True):
                yield from (self._record(home, row) for row in range(start, stop))

    def close(self) -> None:
        for file in self._files:
            file.close()

    def __enter__(self) -> CacheReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _numbered(self, number: int) -> dict[str, Any]:
        home = int(self._starts.searchsorted(number, side="right")) - 1
        (row,) = self._rows(home, np.array([number]))
        return self._record(home, int(row))

    def _record(self, home: int, row: int) -> dict[str, Any]:
        record = self._files[home][row]
        return record | {KEY: _text(record[KEY])} if KEY in record else {**record}

    def _rows(self, home: int, numbers: Array) -> Array:
        """Convert numbers in the split to the rows of a file."""
        return self._omitted[home].rows_of(numbers - self._starts[home])


def _text(key: Array) -> str:
    return key.tobytes().decode()


def _count(file: CacheFileReader, omitted: Omitted) -> int:
    if len(omitted.ranges) and omitted.ranges[-1, 1] > len(file):
        message = f"the version omits records that do not exist: the file has {len(file)}"
        raise DamageError("damage.manifest", message, where=str(file.path))
    return len(file) - omitted.count


def _joined(first: RecordSchema, second: RecordSchema, where: str) -> RecordSchema:
    fields = {field.name: field for field in first.fields}
    for other in second.fields:
        one = fields.get(other.name)
        fields[other.name] = _field(one, other, where) if one else replace(other, optional=True)
    for name in set(first.names) - set(second.names):
        fields[name] = replace(fields[name], optional=True)
    return RecordSchema(tuple(fields.values()))


def _field(one: Field, other: Field, where: str) -> Field:
    if one.kind != other.kind:
        message = f"the files of the cache have incompatible fields {one.name!r}"
        hint = "prepare the dataset again with a cache of encoded records"
        raise FatalError("cache.format", message, where=where, hint=hint)
    sizes = zip(one.shape, other.shape, strict=True)
    shape = tuple(size if size == same else None for size, same in sizes)
    return replace(one, shape=shape, optional=one.optional or other.optional)
