"""Objects wherever they still are, for what is made again: its digest says if they are right."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from larder.errors import ObjectError, StoreError
from larder.store.base import Features, ObjectInfo, Readable, Reader
from larder.store.delegate import DelegatingReadable

T = TypeVar("T")


class Unconditional(DelegatingReadable):
    """A store whose objects are read whatever their etags."""

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        del if_match
        return super().open(key, offset=offset, length=length)

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        del if_match
        return super().get(key, offset=offset, length=length)


class FirstOf(DelegatingReadable):
    """Several stores: each object is read from the first that returns it."""

    def __init__(self, places: Sequence[Readable]) -> None:
        super().__init__(places[0])
        self._places = places

    @property
    def features(self) -> Features:
        return replace(super().features, etag_is_md5=False, place=None)

    def head(self, key: str) -> ObjectInfo:
        return self._first(lambda place: place.head(key))

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        return self._first(
            lambda place: place.open(key, offset=offset, length=length, if_match=if_match)
        )

    def get(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> bytes:
        return self._first(
            lambda place: place.get(key, offset=offset, length=length, if_match=if_match)
        )

    def _first(self, call: Callable[[Readable], T]) -> T:
        """The first answer; the error of the first store if there is none."""
        errors: list[ObjectError | StoreError] = []
        for place in self._places:
            try:
                return call(place)
            except (ObjectError, StoreError) as error:
                errors.append(error)
        if isinstance(errors[0], ObjectError):
            raise errors[0]
        first = errors[0]
        raise ObjectError("object.unreadable", first.message, where=first.where, hint=first.hint)
