"""The fields of a cache's records: named tensors of fixed or ragged shape.

A schema is kept once per LMDB file as canonical JSON (sorted keys, no white space, UTF-8)::

    {"digest":"...","fields":[{"dtype":"int64","name":"label","optional":false,"shape":[]}, ...],
     "format":"larder-cache-3","lmdb":"0.9","place":"segments/SEG/caches/CACHE/SPLIT"}

A dimension that differs between records is null. ``lmdb`` is the release line of LMDB that defines
the file format. ``lmdb``, ``place`` and ``digest`` belong to the file, not to the content, so
content digests do not cover them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np

from larder.bounds import DIMENSIONS, ITEMS, parse_bounded
from larder.errors import DamageError, FatalError
from larder.manifest.digest import canonical_json

FORMAT: Final = "larder-cache-3"
LMDB_LINE: Final = "0.9"

KEY: Final = "key"
"""The field with the key of a sample: UTF-8 in the file, a string for training."""

DTYPES: Final = frozenset(
    ["bool", "float16", "float32", "float64"]
    + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)
"""The supported element types, with numpy's names; all are stored little-endian."""


@dataclass(frozen=True, slots=True)
class Field:
    """One tensor of every record, or of some if ``optional``.

    In ``shape``, a dimension that differs between records is None.
    """

    name: str
    dtype: str
    shape: tuple[int | None, ...] = ()
    optional: bool = False

    def __post_init__(self) -> None:
        if not _is_name(self.name):
            raise _refused(f"{self.name!r} is not a valid field name")
        if self.dtype not in DTYPES:
            names = ", ".join(sorted(DTYPES))
            raise _refused(f"field {self.name!r} has dtype {self.dtype!r}; allowed are {names}")
        sizes = [size for size in self.shape if size is not None]
        if not (
            all(map(_is_size, sizes))
            and len(self.shape) <= DIMENSIONS
            and math.prod(max(1, size) for size in sizes) <= ITEMS
        ):
            raise _refused(f"field {self.name!r} cannot have the shape {self.shape!r}")

    @property
    def kind(self) -> str:
        """Type and number of dimensions, such as ``uint8[3]``: equal in files read as one."""
        return f"{self.dtype}[{len(self.shape)}]"

    @property
    def ragged(self) -> bool:
        return None in self.shape

    @property
    def least_bytes(self) -> int:
        """Bytes of the field in every record; 0 if they differ between records."""
        size = math.prod(size for size in self.shape if size is not None)
        return size * np.dtype(self.dtype).itemsize if self.stackable else 0

    @property
    def stackable(self) -> bool:
        """Whether the values of several records can be stacked into one array."""
        return not self.ragged and not self.optional


@dataclass(frozen=True, slots=True)
class RecordSchema:
    """The fields of every record, in the order of their bytes."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if not names:
            raise _refused("a cache needs at least one field")
        for name in names:
            if names.count(name) > 1:
                raise _refused(f"duplicate field {name!r}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)

    @property
    def is_fixed(self) -> bool:
        """Whether all records have one length."""
        return all(field.stackable for field in self.fields)

    def select(self, names: Sequence[str] | None) -> tuple[Field, ...]:
        """Return the fields with these names, in the order of ``names``; all if None."""
        by_name = {field.name: field for field in self.fields}
        return self.fields if names is None else tuple(by_name[name] for name in names)

    def content(self) -> bytes:
        """Return canonical JSON of format and fields, for the content digest."""
        return canonical_json(self._plain())

    def document(self, **file: str) -> bytes:
        """Return the canonical JSON stored in the file, with facts about the file."""
        return canonical_json({**self._plain(), "lmdb": LMDB_LINE, **file})

    def _plain(self) -> dict[str, Any]:
        return {"format": FORMAT, "fields": [asdict(field) for field in self.fields]}

    @classmethod
    def parse(cls, data: bytes, where: str, **file: str) -> RecordSchema:
        """Parse a `document`; ``damage.digest``: it is of another file."""
        try:
            plain = parse_bounded(data)
            formats = plain["format"], plain["lmdb"]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise _unreadable("the schema cannot be parsed", where) from None
        if formats != (FORMAT, LMDB_LINE):
            readable = f"{FORMAT} of LMDB {LMDB_LINE}"
            message = f"the format is {formats[0]} of LMDB {formats[1]}, not {readable}"
            raise _unreadable(message, where)
        for name, wanted in file.items():
            if plain.get(name) != wanted:
                message = f"it is another file: its {name} is {plain.get(name)!r}, not {wanted!r}"
                raise DamageError("damage.digest", message, where=where)
        try:
            return cls(tuple(_field(entry) for entry in plain["fields"]))
        except (KeyError, TypeError, FatalError) as error:
            raise _unreadable(f"invalid schema: {error}", where) from None


def _field(plain: Mapping[str, Any]) -> Field:
    return Field(plain["name"], plain["dtype"], tuple(plain["shape"]), plain["optional"])


def check_room(fields: Iterable[Field], records: int, size_bytes: int) -> None:
    """Raise ValueError if a file of ``size_bytes`` is too small for its records and fields."""
    least_bytes = records * sum(field.least_bytes for field in fields)
    if least_bytes > size_bytes:
        message = f"{records:,} records take {least_bytes:,} bytes or more"
        raise ValueError(f"{message}, and the file has {size_bytes:,}")


def _is_name(name: object) -> bool:
    # A lone surrogate cannot be encoded as UTF-8.
    return isinstance(name, str) and name != "" and name.encode(errors="replace").decode() == name


def _is_size(size: object) -> bool:
    return type(size) is int and 0 <= size < 1 << 32


def _refused(message: str) -> FatalError:
    return FatalError("cache.schema", message)


def _unreadable(message: str, where: str) -> FatalError:
    hint = "build the cache again, or use the version of Larder that wrote it"
    return FatalError("cache.format", message, where=where, hint=hint)
