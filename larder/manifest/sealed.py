"""Documents: dataclasses as canonical JSON; ``self_sha256`` is the sha256 without this key.

A document with a correct digest may still come from another program, a later release, or a person
with write access to the bucket. So `from_plain` checks the values against the types of the fields.
No later code meets a string for a number, or a path that leads elsewhere (`larder.names`).

Documents refer to other files by `StoredFile`; steps also pass manifests on as `StoredFile`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial
from itertools import count, repeat
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from larder.bounds import BoundError, parse_bounded
from larder.errors import DamageError
from larder.manifest.digest import canonical_json
from larder.names import Digest, PlainName, StoredPath

Value = TypeVar("Value")

Reader = Callable[[Any], Any]
"""A function that reads a value of plain JSON."""


_MAX = 2**63 - 1


_SIGNED = ("shuffle_seed",)
"""Fields with numbers that may be negative, or of any length; other numbers are counts."""


_SHOWN_CHARACTERS = 60
"""Most characters of an unknown name to show in messages."""


SPARSE = {"sparse": True}
"""Metadata of a field that is left out at its default, like the fields of a dataclass in it."""


def to_plain(value: Any, *, sparse: bool = False) -> Any:
    """Convert a dataclass, or a value of its fields, to plain JSON; ``sparse`` omits defaults."""
    if hasattr(value, "__dataclass_fields__"):
        plain = {}
        for item in fields(value):
            field_value, left_out = getattr(value, item.name), sparse or "sparse" in item.metadata
            if not (left_out and field_value == item.default):
                plain[item.name] = to_plain(field_value, sparse=left_out)
        return plain
    if isinstance(value, Mapping):
        return {key: to_plain(item, sparse=sparse) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item, sparse=sparse) for item in value]
    return value


def from_plain(kind: type[Value], plain: Any) -> Value:
    """Read a dataclass, with all nested values, from plain JSON.

    Fields are strings, whole numbers that are not negative, dataclasses, mappings from strings,
    tuples, or one of these or None. Fields with a default may be missing in ``plain``. Strings and
    the names of mappings may have a `larder.names.TextRule`. A method ``check`` of a dataclass
    compares fields with each other, and raises ValueError.

    Raises:
        ValueError: A field is missing, unknown, of another type, or invalid for its type.
    """
    value: Value = _dataclass(kind, plain)
    return value


class _InvalidError(ValueError):
    """An invalid value, and its path in the document."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(f"{path} {message}")
        self.message, self.path = message, path

    def below(self, name: str) -> _InvalidError:
        """Return the error with the name or place of the value in its container."""
        dot = "." if self.path[:1] not in ("", "[", ":") else ""
        return _InvalidError(self.message, f"{name[:_SHOWN_CHARACTERS]}{dot}{self.path}")


@cache
def _reader(kind: Any, is_signed: bool = False) -> Reader:
    """Return the reader of a type; cached, because a command may read thousands of documents."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        is_allowed = re.compile(args[1].regex).fullmatch
        return partial(_ruled, _reader(args[0]), is_allowed, args[1].noun)
    if NoneType in args:
        (inner,) = (each for each in args if each is not NoneType)
        return partial(_optional, _reader(inner, is_signed))
    if origin is tuple:
        readers = tuple(_reader(each) for each in args if each is not Ellipsis)
        return partial(_tuple, readers, args[-1] is Ellipsis)
    if origin is not None:  # a mapping
        return partial(_mapping, _reader(args[0]), _reader(args[1]))
    if is_dataclass(kind):
        return partial(_dataclass, kind)
    return _count if kind is int and not is_signed else partial(_single, kind)


def _ruled(read: Reader, is_allowed: Callable[[str], object], noun: str, plain: Any) -> Any:
    if not is_allowed(read(plain)):
        raise _InvalidError(f"is not {noun}")
    return plain


def _optional(read: Reader, plain: Any) -> Any:
    return None if plain is None else read(plain)


def _single(kind: type, plain: Any) -> Any:
    if type(plain) is not kind:
        raise _InvalidError(f"is not a {'string' if kind is str else 'whole number'}")
    return plain


def _count(plain: Any) -> int:
    if not 0 <= _single(int, plain) <= _MAX:
        raise _InvalidError("is out of range")
    return int(plain)


def _each(names: Iterable[str | int], readers: Iterable[Reader], items: Iterable[Any]) -> list[Any]:
    """Read values with the reader of each; an error has the name or place of the value."""
    values = []
    for name, read, plain in zip(names, readers, items, strict=False):
        try:
            values.append(read(plain))
        except _InvalidError as error:
            raise error.below(f"[{name}]" if isinstance(name, int) else name) from None
    return values


def _tuple(readers: tuple[Reader, ...], repeats: bool, plain: Any) -> tuple[Any, ...]:
    if not isinstance(plain, list):
        raise _InvalidError("is not a list")
    if repeats:
        readers *= len(plain)
    if len(readers) != len(plain):
        raise _InvalidError(f"has {len(plain)} items instead of {len(readers)}")
    return tuple(_each(count(), readers, plain))


def _mapping(read_name: Reader, read: Reader, plain: Any) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise _InvalidError("is not a mapping")
    names = _each(repeat(": a name"), repeat(read_name), plain)
    return dict(zip(names, _each(plain, repeat(read), plain.values()), strict=True))


def _dataclass(kind: Any, plain: Any) -> Any:
    if not isinstance(plain, Mapping):
        raise _InvalidError("is not a mapping")
    readers = _readers(kind)
    unknown = plain.keys() - readers.keys()
    if unknown:
        raise _InvalidError("is not known").below(min(unknown))
    missing = _required(kind) - plain.keys()
    if missing:
        raise _InvalidError("is missing").below(min(missing))
    values = _each(plain, map(readers.__getitem__, plain), plain.values())
    value = kind(**dict(zip(plain, values, strict=True)))
    if hasattr(kind, "check"):
        value.check()
    return value


@cache
def _readers(kind: Any) -> dict[str, Reader]:
    hints = get_type_hints(kind, include_extras=True)
    return {name: _reader(hint, name in _SIGNED) for name, hint in hints.items()}


@cache
def _required(kind: Any) -> frozenset[str]:
    return frozenset(
        field.name
        for field in fields(kind)
        if field.default is MISSING and field.default_factory is MISSING
    )


_OLDER = "use the release that wrote it, or prepare into an empty storage"
MAKE_AGAIN = "restore it, or delete it and prepare the dataset again"
"""The hint for damage to files that can be made again from the source: all but source objects."""

REPAIR = "run larder verify --repair, or restore it"
"""The hint for damage to a file that a version names."""


def seal(document: Any) -> bytes:
    """Return the bytes of a document (dataclass or mapping), including its own digest."""
    return _sealed(to_plain(document))


def _sealed(plain: Mapping[str, Any]) -> bytes:
    digest = hashlib.sha256(canonical_json(plain)).hexdigest()
    return canonical_json({**plain, "self_sha256": digest}) + b"\n"


def unseal(data: bytes, where: str, hint: str = MAKE_AGAIN) -> dict[str, Any]:
    """Return the mapping in a sealed document.

    Raises:
        DamageError: ``damage.manifest``: the bytes are not a sealed document; ``damage.digest``:
            the bytes have changed.
    """
    try:
        plain = parse_bounded(data)
        del plain["self_sha256"]
        is_whole = _sealed(plain) == data
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        message = str(error) if isinstance(error, BoundError) else "not a Larder document"
        raise DamageError("damage.manifest", message, where=where, hint=hint) from None
    if not is_whole:
        message = "the document does not match its digest"
        raise DamageError("damage.digest", message, where=where, hint=hint)
    return dict(plain)


def read_sealed(
    kind: type[Value],
    data: bytes,
    where: str,
    expected: str,
    *,
    hint: str = MAKE_AGAIN,
    older: str = _OLDER,
) -> Value:
    """Read a sealed document of the ``expected`` format; raise the errors of `unseal`."""
    plain = unseal(data, where, hint)
    if plain.get("format") != expected:
        written = repr(plain.get("format"))[:_SHOWN_CHARACTERS]
        message = f"format {written}; this Larder reads {expected}"
        name, _, number = expected.rpartition("-")
        is_older = plain.get("format") in [f"{name}-{each}" for each in range(int(number))]
        hint = older if is_older else "use a newer Larder"
        raise DamageError("damage.manifest", message, where=where, hint=hint)
    try:
        return from_plain(kind, plain)
    except ValueError as error:
        message = f"invalid field: {error}"
        raise DamageError("damage.manifest", message, where=where, hint=hint) from None


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file that Larder has stored: its path below the root, length, digest and role.

    In documents, ``role`` is one of `larder.versions.documents.ROLES`. For a shard the role is
    ``shard``; for an index for another reader it is the kind of the index.
    """

    path: StoredPath
    bytes: int
    sha256: Digest
    role: PlainName

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]
