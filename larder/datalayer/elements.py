"""Elements of a dataset, and their layout in the fields of records.

An element is an array, or a tuple or dictionary of elements. The arrays of an element are its
leaves, numbered in order; leaf N fills the field ``N``:

=======================  =========================================================================
numbers and booleans     as they are
complex, bfloat16        their bytes, in one more dimension (`VIEWED`)
strings                  the bytes of all strings; ``N.lengths`` has their lengths, in the shape
                         of the array
=======================  =========================================================================

A path of steps locates a leaf in an element, ``.NAME`` in a dictionary and ``[N]`` in a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, Final

import numpy as np

from larder.cache.cache_record import Value
from larder.cache.schema import DTYPES, Field, RecordSchema
from larder.errors import FatalError
from larder.packages import require_module

Shape = tuple[int | None, ...]

VIEWED: Final = {"bfloat16": 2, "complex128": 16, "complex64": 8}
"""Types that have no field type, and their size in bytes."""

STRINGS: Final = ("bytes", "str")

_MOST_STEPS = 32
_HINT = "return arrays, or tuples or dictionaries of them"


@dataclass(frozen=True, slots=True)
class Leaf:
    """An array of every element.

    Attributes:
        path: Steps to the array; empty if the element is the array.
        shape: Shape from the function's specification; None for an unknown number of dimensions.
        stored: The narrowest shape of all elements.
    """

    path: tuple[str, ...]
    dtype: str
    shape: Shape | None
    stored: Shape = ()

    def check(self) -> None:
        """Raise ValueError for an invalid leaf; called when a document is read."""
        if self.dtype not in (*DTYPES, *VIEWED, *STRINGS) or len(self.path) > _MOST_STEPS:
            raise ValueError(f"{self.name} is of {self.dtype}")
        if self.shape is not None and not _fits(self.stored, self.shape):
            raise ValueError(f"{self.name} has the shape {self.stored}")

    @property
    def name(self) -> str:
        return "".join(self.path) or "element"

    def fields(self, number: int, shape: Shape) -> Iterator[Field]:
        """Yield the fields of leaf ``number`` for values of this shape."""
        if self.dtype in STRINGS:
            yield Field(f"{number}.lengths", "int64", shape)
            yield Field(f"{number}", "uint8", (None,))
        elif self.dtype in VIEWED:
            yield Field(f"{number}", "uint8", (*shape, VIEWED[self.dtype]))
        else:
            yield Field(f"{number}", self.dtype, shape)

    def values(self, number: int, value: np.ndarray[Any, Any]) -> Iterator[tuple[str, Value]]:
        if self.dtype in STRINGS:
            strings = [_bytes(each) for each in value.reshape(-1).tolist()]
            yield f"{number}.lengths", np.array([*map(len, strings)], np.int64).reshape(value.shape)
            yield f"{number}", b"".join(strings)
        elif self.dtype in VIEWED:
            raw = np.frombuffer(value.astype(value.dtype.newbyteorder("<")).tobytes(), np.uint8)
            yield f"{number}", raw.reshape(*value.shape, VIEWED[self.dtype])
        else:
            yield f"{number}", value

    def column(self, number: int, batch: Mapping[str, Any]) -> Any:
        """Return the values of a batch: one array if all shapes agree, else a list of arrays."""
        column = batch[f"{number}"]
        if self.dtype in STRINGS:
            lengths = batch[f"{number}.lengths"]
            rows = [self._strings(*row) for row in zip(column, lengths, strict=True)]
            return _stacked(rows, lengths.shape) if isinstance(lengths, np.ndarray) else rows
        if self.dtype not in VIEWED:
            return column
        dtype = numpy_dtype(self.dtype)
        one = isinstance(column, np.ndarray)
        return column.view(dtype)[..., 0] if one else [row.view(dtype)[..., 0] for row in column]

    def _strings(self, data: Any, lengths: Any) -> Any:
        raw, start = data.tobytes(), 0
        strings = np.empty(lengths.size, object)
        for place, length in enumerate(lengths.reshape(-1).tolist()):
            piece = raw[start : start + length]
            strings[place] = piece.decode() if self.dtype == "str" else piece
            start += length
        return strings.reshape(lengths.shape) if lengths.shape else strings[0]


@dataclass(frozen=True, slots=True)
class FunctionResult:
    """A dataset that a decorated function returned.

    Attributes:
        kind: As in `larder.datalayer.layer_cache.LayerCache`.
        need_bytes: Least number of bytes that the elements take; 0 if unknown.
        is_stacked: Whether ``elements`` yields stacks of several elements of one shape.
    """

    kind: str
    leaves: tuple[Leaf, ...]
    elements: Callable[[], Iterator[Any]]
    need_bytes: int = 0
    is_stacked: bool = False


def numpy_dtype(name: str) -> Any:
    if name in DTYPES or name.startswith("complex"):
        return np.dtype(name)
    require_module("tensorflow", "ml_dtypes")
    return np.dtype(getattr(import_module("ml_dtypes"), name))


def schema_of(leaves: Sequence[Leaf]) -> RecordSchema:
    """Return the schema of files; a dimension is open if the function does not give its length."""
    shapes = [(None,) * len(leaf.stored) if leaf.shape is None else leaf.shape for leaf in leaves]
    return _schema(leaves, shapes)


def stored_schema(leaves: Sequence[Leaf]) -> RecordSchema:
    """Return the schema for reading; a dimension is open only if it differs between elements."""
    return _schema(leaves, [leaf.stored for leaf in leaves])


def _schema(leaves: Sequence[Leaf], shapes: Sequence[Shape]) -> RecordSchema:
    pairs = enumerate(zip(leaves, shapes, strict=True))
    fields = (field for number, (leaf, shape) in pairs for field in leaf.fields(number, shape))
    return RecordSchema(tuple(fields))


def flattened(element: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each leaf with its path; raise ``cache.schema`` for other containers."""
    name = "".join(path) or "an element"
    if len(path) > _MOST_STEPS:
        raise refused(f"{name} is nested more than {_MOST_STEPS} deep")
    if isinstance(element, Mapping):
        if not all(isinstance(key, str) and key.isprintable() for key in element):
            raise refused(f"{name} has a key that is not a printable string")
        items = [(f".{key}", element[key]) for key in sorted(element)]
    elif isinstance(element, tuple) and not hasattr(element, "_fields"):
        items = [(f"[{place}]", value) for place, value in enumerate(element)]
    elif element is None or isinstance(element, list | tuple | set | frozenset | dict):
        raise refused(f"{name} is a {type(element).__name__}")
    else:
        yield path, element
        return
    if not items:
        raise refused(f"{name} is empty")
    for step, value in items:
        yield from flattened(value, (*path, step))


def assembled(paths: Sequence[tuple[str, ...]], values: Sequence[Any]) -> Any:
    """Build an element from its leaves in order: the reverse of `flattened`."""
    if len(paths) == 1 and not paths[0]:
        return values[0]
    groups: dict[str, list[int]] = {}
    for number, path in enumerate(paths):
        groups.setdefault(path[0], []).append(number)
    items = {
        step: assembled([paths[n][1:] for n in numbers], [values[n] for n in numbers])
        for step, numbers in groups.items()
    }
    if next(iter(items)).startswith("["):
        return tuple(items.values())
    return {step[1:]: item for step, item in items.items()}


def columns_of(leaves: Sequence[Leaf], batch: Mapping[str, Any]) -> list[Any]:
    return [leaf.column(number, batch) for number, leaf in enumerate(leaves)]


def batch_of(leaves: Sequence[Leaf], batch: Mapping[str, Any]) -> Any:
    return assembled([leaf.path for leaf in leaves], columns_of(leaves, batch))


def elements_of(leaves: Sequence[Leaf], batch: Mapping[str, Any]) -> Iterator[Any]:
    paths = [leaf.path for leaf in leaves]
    return (assembled(paths, row) for row in zip(*columns_of(leaves, batch), strict=True))


def check_paths(paths: Sequence[tuple[str, ...]]) -> None:
    """Raise ValueError unless an element with exactly these paths exists."""
    try:
        same = [path for path, _ in flattened(assembled(paths, range(len(paths))))]
    except (LookupError, StopIteration, FatalError):
        same = []
    if not paths or same != list(paths):
        raise ValueError("the leaves are not those of an element")


def leaves_of(element: Any) -> tuple[Leaf, ...]:
    """Return the leaves of an iterator's first element; other elements may have other lengths."""
    leaves = []
    for path, value in flattened(element):
        name = "".join(path) or "an element"
        array = as_array(value, name)
        leaves.append(Leaf(path, dtype_of(array, name), (None,) * array.ndim, array.shape))
    return tuple(leaves)


def as_array(value: Any, name: str) -> np.ndarray[Any, Any]:
    """Convert a value of numpy, Python, PyTorch or TensorFlow; strings become an object array."""
    if isinstance(value, bytes | str):
        array = np.empty((), object)
        array[()] = value
        return array
    if isinstance(value, np.ma.MaskedArray):
        hint = "return its data and its mask as two arrays, or fill it with filled()"
        raise refused(f"{name} is a masked array, and a cache has no masks", hint)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:
        raise refused(f"{name} is no array: {error}") from error
    return array.astype(object) if array.dtype.kind in "SU" else array


def dtype_of(array: np.ndarray[Any, Any], name: str) -> str:
    if array.dtype.kind != "O":
        dtype = _name_of(array.dtype)
        if dtype in (*DTYPES, *VIEWED):
            return dtype
        raise refused(f"{name} has the type {dtype}, which a cache cannot hold")
    kinds = {_string_type(each) for each in array.reshape(-1).tolist()} or {bytes}
    if len(kinds) == 1 and (kind := kinds.pop()) in (bytes, str):
        return str(kind.__name__)
    raise refused(f"{name} has neither numbers nor strings of one kind")


def _string_type(value: Any) -> type:
    """Return the type of a value; numpy's strings count as plain strings."""
    return next((kind for kind in (bytes, str) if isinstance(value, kind)), type(value))


@cache
def _name_of(dtype: np.dtype[Any]) -> str:
    return str(dtype.name)


class Encoder:
    """An encoder of elements as values of records, which also collects the shapes."""

    def __init__(self, leaves: Sequence[Leaf]) -> None:
        self._leaves = tuple(leaves)
        self._paths = [leaf.path for leaf in leaves]
        self._shapes: list[Shape | None] = [None] * len(self._leaves)
        self.count = 0

    @property
    def leaves(self) -> tuple[Leaf, ...]:
        """The leaves, with shapes that cover the elements seen so far."""
        shapes = zip(self._leaves, self._shapes, strict=True)
        return tuple(replace(leaf, stored=shape or ()) for leaf, shape in shapes)

    def values(self, element: Any) -> dict[str, Value]:
        """Return the values by field; raise ``cache.schema`` for an element unlike the first."""
        values: dict[str, Value] = {}
        pairs = list(flattened(element))
        if [path for path, _ in pairs] != self._paths:
            raise self._odd("it has other leaves than the first element")
        for number, (leaf, (_, value)) in enumerate(zip(self._leaves, pairs, strict=True)):
            array = as_array(value, leaf.name)
            dtype = dtype_of(array, leaf.name)
            if dtype != leaf.dtype and not (array.size == 0 and {dtype, leaf.dtype} <= {*STRINGS}):
                raise self._odd(f"{leaf.name} is of {dtype}, in the first element of {leaf.dtype}")
            self._shapes[number] = self._narrowest(number, leaf, array.shape)
            values.update(leaf.values(number, array))
        self.count += 1
        return values

    def rows(self, elements: Any) -> dict[str, Any]:
        """Return the values by field of several elements that are known to have one shape."""
        arrays = [value for _, value in flattened(elements)]
        self._shapes = [array.shape[1:] for array in arrays]
        leaves = enumerate(self._leaves)
        return dict(pair for place, leaf in leaves for pair in leaf.values(place, arrays[place]))

    def _narrowest(self, number: int, leaf: Leaf, shape: tuple[int, ...]) -> Shape:
        before = self._shapes[number]
        if before == shape:
            return before
        wanted = leaf.stored if leaf.shape is None else leaf.shape
        if not _fits(shape, (None,) * len(wanted) if leaf.shape is None else wanted):
            raise self._odd(f"{leaf.name} has the shape {shape}, not {wanted}")
        if before is None:
            return shape
        both = zip(before, shape, strict=True)
        return tuple(size if size == length else None for size, length in both)

    def _odd(self, message: str) -> FatalError:
        return refused(f"element {self.count}: {message}")


def _fits(shape: Shape, wanted: Shape) -> bool:
    """Whether a shape matches the wanted shape, where None takes any length."""
    return len(shape) == len(wanted) and all(
        size in (None, length) for size, length in zip(wanted, shape, strict=True)
    )


def refused(message: str, hint: str = _HINT) -> FatalError:
    return FatalError("cache.schema", message, where="the decorated function", hint=hint)


def _bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _stacked(rows: Sequence[Any], shape: tuple[int, ...]) -> Any:
    stacked = np.empty(shape, object)
    for number, row in enumerate(rows):
        stacked[number] = row
    return stacked
