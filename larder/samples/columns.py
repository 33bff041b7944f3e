"""Arrow columns as Python values.

Through numpy: ``to_pylist`` creates an Arrow scalar for every value and is ten times slower.
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
    """The values of a column of booleans without nulls."""
    flags: Flags = column.to_numpy(zero_copy_only=False)
    return flags


def column_texts(column: pa.Array) -> list[str]:
    texts: list[str] = column.to_numpy(zero_copy_only=False).tolist()
    return texts


def repeated_texts(column: pa.Array) -> list[str]:
    """The strings of a column without nulls; equal ones are one object, which takes less memory."""
    encoded = column.dictionary_encode()
    texts = column_texts(encoded.dictionary)
    return [texts[index] for index in encoded.indices.to_numpy().tolist()]


def column_values(column: pa.Array) -> list[Any]:
    """The values of a column; quickly if there are no nulls."""
    if column.null_count:
        return list(column.to_pylist())
    values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    return values


def named_tuples(kind: type[Struct], *columns: Iterable[Any]) -> Iterator[Struct]:
    """The named tuples with these columns, of all their fields, up to the end of the shortest.

    The same as ``map(kind, *columns)``, which calls a function written in Python for each.
    """
    return map(partial(tuple.__new__, kind), zip(*columns, strict=False))


def column_structs(
    lists: pa.Array, names: tuple[str, ...], kind: type[Struct]
) -> Iterator[tuple[Struct, ...]]:
    """The lists of structs of a column without nulls, each as a tuple."""
    structs = lists.flatten()
    made = tuple(named_tuples(kind, *(column_values(structs.field(name)) for name in names)))
    offsets = lists.offsets.to_numpy()
    places = offsets - offsets[0]
    if np.array_equal(places, np.arange(len(made) + 1)):  # one in each list, as most samples have
        return zip(made, strict=True)
    return (made[start:stop] for start, stop in pairwise(places.tolist()))
