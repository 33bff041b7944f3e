"""The classes of a dataset: collected as they occur, numbered when all are known."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from larder.errors import ConfigError
from larder.units import format_count, format_names

_WHOLE_NUMBER = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Numbering:
    """The classes, and the number of the class by code of a `ClassTable`: int32."""

    classes: tuple[str, ...]
    labels: npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class _Seen:
    """The first occurrence of a class; ``file`` is empty if it comes from elsewhere."""

    text: str
    file: str
    sample_key: str


class ClassTable:
    """Assigns a code to every class that occurs; `number` then gives their meaning.

    The classes are the pinned ones, or else all names that occur, sorted by their UTF-8 bytes,
    after the published ones (of the previous version), which keep their numbers, whether they occur
    or not. A whole number in a label file or a column is the class with that name, if there is one.
    Otherwise it is an index into the classes, from 0, unless every class is itself a whole number.
    If there are only whole numbers and nothing else names a class, these are the names of the
    classes.

    Memory is proportional to the number of classes. Messages name ``origin``, which gives a sample
    its class unless that is a label file.
    """

    def __init__(
        self, pinned: Sequence[str] | None, published: Sequence[str] = (), origin: str = "folder"
    ) -> None:
        self._pinned = pinned
        self._published = tuple(published)
        self._origin = origin
        self._codes: dict[tuple[str, bool], int] = {}
        self._seen: list[_Seen] = []
        twice = next((name for name, count in Counter(pinned or ()).items() if count > 1), None)
        if twice is not None:
            raise ConfigError("config.label", f"duplicate class {twice!r}", where="labels.classes")

    def code(
        self, text: str, *, sample_key: str, file: str = "", may_be_number: bool = False
    ) -> int:
        """The code of a class; ``file`` is empty if it does not come from a label file.

        With ``may_be_number``, as in a file, a whole number may be meant as the number of a class.
        """
        number = (bool(file) or may_be_number) and _WHOLE_NUMBER.fullmatch(text) is not None
        code = self._codes.setdefault((text, number), len(self._seen))
        if code == len(self._seen):
            self._seen.append(_Seen(text, file, sample_key))
        return code

    def number(self) -> Numbering:
        """Number the classes; ``config.label``: one that is not pinned, or a number too large."""
        classes = self._classes()
        places = {name: place for place, name in enumerate(classes)}
        by_place = not all(map(_WHOLE_NUMBER.fullmatch, classes))
        labels = np.empty(len(self._seen), np.int32)
        unknown = []
        for (text, number), code in self._codes.items():
            place = places.get(text)
            if place is None and number and by_place and int(text) < len(classes):
                place = int(text)
            if place is None:
                unknown.append(self._seen[code])
            else:
                labels[code] = place
        if unknown:
            raise self._unknown(unknown, classes)
        return Numbering(classes=classes, labels=labels)

    def _classes(self) -> tuple[str, ...]:
        if self._pinned is not None:
            return tuple(self._pinned)
        names = {text for text, number in self._codes if not number}
        if not names and all(map(_WHOLE_NUMBER.fullmatch, self._published)):
            names = {text for text, _ in self._codes}
        return (*self._published, *sorted(names.difference(self._published), key=str.encode))

    def _unknown(self, unknown: Sequence[_Seen], classes: Sequence[str]) -> ConfigError:
        seen, *others = unknown
        source = f"file {seen.file}" if seen.file else self._origin
        message = f"its {source} gives it class {seen.text!r}, "
        if len(classes) == 1:
            message += f"but the only class is {classes[0]!r}"
        else:
            message += f"which is not one of the {format_count(len(classes), 'class')}"
        if others:
            message += f"; neither are {format_names([repr(each.text) for each in others], 3)}"
        them = "them" if others else "it"
        hint = f"add {them} to labels.classes" if self._pinned is not None else "see labels.classes"
        return ConfigError("config.label", message, where=seen.sample_key, hint=hint)
