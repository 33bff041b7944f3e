"""What a decoder is: a function from the bytes of a part to arrays, and how it is run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from larder.config.shape import DecoderUse
from larder.errors import FatalError, LarderError, ObjectError

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]

_MOST_SHOWN: Final = 300


@dataclass(frozen=True, slots=True)
class Decoder:
    """What decodes a kind of part.

    Attributes:
        decode: Makes an array of the bytes of a part, or arrays by the names of ``fields``. Raises
            any exception for bytes that it cannot decode. Called by several threads at once.
        version: Changes whenever its results do: caches are built again.
        fields: What follows the name of the part's field, for each of its arrays: nothing, or a
            name after a dot.
        expands: Bytes of memory that it needs for a byte of the part, its arrays included.
    """

    name: str
    decode: Callable[..., Any]
    version: str = "1"
    fields: tuple[str, ...] = ("",)
    expands: float = 2.0


@dataclass(frozen=True, slots=True)
class Bound:
    """A decoder with its line in ``decoding``."""

    decoder: Decoder
    use: DecoderUse

    def names(self, field: str) -> tuple[str, ...]:
        """The fields of a cache that it fills, if the part itself is ``field``."""
        return tuple(f"{field}.{name}" if name else field for name in self.decoder.fields)

    def needed_bytes(self, length: int) -> int:
        return int(length * self.decoder.expands)

    def decode(self, data: bytes, where: str, hint: str) -> dict[str, Array]:
        """Decode a part: an array for each of the decoder's ``fields``.

        A decoder that does not return arrays is ``cache.schema``.
        """
        parameters = json.loads(self.use.parameters) if self.use.parameters else {}
        with self._errors(where, hint):
            result = self.decoder.decode(data, **parameters)
        arrays = self._arrays(result, where)
        with self._errors(where, hint):
            for array in arrays.values():
                if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                    raise ValueError(f"its elements are {array.dtype}, which no cache can hold")
            self._check_shape(arrays[self.decoder.fields[0]])
        return arrays

    def _arrays(self, result: Any, where: str) -> dict[str, Array]:
        names = self.decoder.fields
        given = result if isinstance(result, Mapping) else {names[0]: result}
        if given.keys() != set(names):
            message = f"{self.decoder.name} returned {_listed(given)} instead of {_listed(names)}"
            raise FatalError("cache.schema", message, where=where)
        for value in given.values():
            if not isinstance(value, np.ndarray | np.generic):
                message = f"{self.decoder.name} returned a {type(value).__name__}, not an array"
                raise FatalError("cache.schema", message, where=where, hint="return numpy arrays")
        return {name: np.asarray(given[name]) for name in names}

    def _check_shape(self, array: Array) -> None:
        wanted = self.use.shape
        if wanted is None:
            return
        fits = len(wanted) == array.ndim and all(
            size in (None, length) for size, length in zip(wanted, array.shape, strict=True)
        )
        if not fits:
            raise ValueError(f"its shape is {_shape(array.shape)}, not {_shape(wanted)}")

    @contextmanager
    def _errors(self, where: str, hint: str) -> Iterator[None]:
        try:
            yield
        except (LarderError, MemoryError):
            raise
        except Exception as error:
            # Any exception: the function may be anybody's.
            message = f"{self.decoder.name} cannot decode it: {_reason(error)}"
            raise ObjectError("sample.undecodable", message, where=where, hint=hint) from error


def kind_of(arrays: Arrays) -> str:
    """Types and numbers of dimensions, such as ``int16[2] and int64[0]``: alike in one cache."""
    return " and ".join(f"{array.dtype.name}[{array.ndim}]" for array in arrays.values())


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(repr, names))) or "nothing"


def _shape(shape: tuple[int | None, ...]) -> str:
    sizes = ["*" if size is None else str(size) for size in shape]
    return f"({', '.join(sizes)})"


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split())[:_MOST_SHOWN]
    if isinstance(error, ValueError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
