"""Arrow columns as Python values and the reverse, by way of numpy.

``to_pylist`` creates an Arrow scalar for every value and is ten times slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import pyarrow as pa

Struct = TypeVar("Struct", bound=tuple[Any, ...])


Flags = npt.NDArray[np.bool_]


def column_flags(column: pa.Array) -> Flags:
    """Return the values of a boolean column without nulls."""
    flags: Flags = column.to_numpy(zero_copy_only=False)
    return flags


def arrow_flags(flags: Flags) -> pa.Array:
    """Return flags as a column; ``pa.array`` would import ``numpy.ma`` and take longer."""
    import pyarrow as pa  # readers do without it

    bits = pa.py_buffer(np.packbits(flags, bitorder="little"))
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, bits])


FROM_PREVIOUS = ("packed", "bad")
"""Columns of SAMPLE_ORDER that follow from the previous version; null in a first order."""


def from_objects(batch: pa.RecordBatch) -> Flags:
    """Flag rows of SAMPLE_ORDER that are read from objects: not packed before, and not bad."""
    packed, bad = (column_flags(batch.column(name).is_null()) for name in FROM_PREVIOUS)
    return packed & bad


def column_texts(column: pa.Array) -> list[str]:
    texts: list[str] = column.to_numpy(zero_copy_only=False).tolist()
    return texts


def repeated_texts(column: pa.Array) -> list[str]:
    """Return the strings of a column without nulls; equal strings share one object, for memory."""
    encoded = column.dictionary_encode()
    texts = column_texts(encoded.dictionary)
    return [texts[index] for index in encoded.indices.to_numpy().tolist()]


def column_values(column: pa.Array) -> list[Any]:
    """Return the values of a column; fast for a column without nulls."""
    if column.null_count:
        return list(column.to_pylist())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def named_tuples(kind: type[Struct], *columns: Iterable[Any]) -> Iterator[Struct]:
    """Yield named tuples from a column for each field, up to the end of the shortest column.

    ``map(kind, *columns)`` has the same result, but calls a Python function for each tuple.
    """
    return map(partial(tuple.__new__, kind), zip(*columns, strict=False))


def column_structs(
    lists: pa.Array, names: tuple[str, ...], kind: type[Struct]
) -> Iterator[tuple[Struct, ...]]:
    """Return each list of structs in a column without nulls as a tuple."""
    structs = lists.flatten()
    made = tuple(named_tuples(kind, *(column_values(structs.field(name)) for name in names)))
    offsets = lists.offsets.to_numpy()
    places = offsets - offsets[0]
    if np.array_equal(places, np.arange(len(made) + 1)):  # one in each list, as in most samples
        return zip(made, strict=True)
    return (made[start:stop] for start, stop in pairwise(places.tolist()))
