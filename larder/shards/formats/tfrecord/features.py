"""Features of a record and their sources: ``shards.features``.

A part that no feature contains as bytes becomes another feature of bytes, even if features contain
the part as numbers. So every part can be read back unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from larder.config.shape import Feature, FormatOptions
from larder.errors import ConfigError, ObjectError
from larder.samples.image_parts import Role, role

DEFAULT_FEATURES: Mapping[str, Feature] = {
    "image/class/label": Feature("label", "int64"),
    "image/encoded": Feature("image", "bytes"),
    "image/filename": Feature("key", "bytes"),
}

MOST_TEXT_BYTES = 1 << 20
"""The maximum length of a part that becomes numbers: numbers take many times as much memory."""

_TEXT_SUFFIX = "/text"
"""Suffix of a feature with the bytes of a part that becomes numbers, after the extension."""

_IMAGE = Role("", True)
_FLOAT32_END = 2**128 - 2**103
"""The least number that is rounded to infinity: half a step above the largest float32."""

_SHOWN = 40
_INT64 = re.compile(rb"[+-]?[0-9]{1,19}")
_FLOAT = re.compile(rb"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|nan|inf)")


class RecordFeature(NamedTuple):
    """One feature of a record.

    ``source`` is ``content`` for the bytes of a part, ``part`` for the numbers in a part,
    ``label``, ``class`` or ``key``. ``part`` is the number of the sample's part.
    """

    name: str
    source: str
    kind: str
    part: int = -1


class FeatureMap:
    """The features of a format's options."""

    def __init__(self, options: FormatOptions) -> None:
        given = DEFAULT_FEATURES if options.features is None else options.features
        self._names = frozenset(given)
        self._of_part: dict[str, list[tuple[str, str]]] = {}
        self._of_image: list[tuple[str, str]] = []
        self.of_sample: list[RecordFeature] = []
        for name, feature in given.items():
            if feature.source == "part":
                self._of_part.setdefault(feature.part, []).append((name, feature.kind))
            elif feature.source == "image":
                self._of_image.append((name, feature.kind))
            else:
                self.of_sample.append(RecordFeature(name, feature.source, feature.kind))
        of_parts = [*self._of_image, *(pair for pairs in self._of_part.values() for pair in pairs)]
        self.has_numbers = any(kind != "bytes" for _, kind in of_parts)

    def is_image(self, ext: str) -> bool:
        """Whether a part becomes the features of the image; a sample may have one such part."""
        return bool(self._of_image) and role(ext) == _IMAGE

    def is_plain(self, ext: str) -> bool:
        """Whether a part becomes one feature of bytes, with the name of its extension."""
        return ext not in self._of_part and not self.is_image(ext) and ext not in self._names

    def of_part(self, ext: str) -> list[tuple[str, str]]:
        features = [*self._of_part.get(ext, ()), *(self._of_image if self.is_image(ext) else ())]
        if all(kind != "bytes" for _, kind in features):
            name = ext + _TEXT_SUFFIX if features else ext
            if name in self._names:
                message = f"the bytes of part {ext!r} need the name {name!r}, which is another's"
                hint = f"rename feature {name!r}, or make a feature of kind bytes of the part"
                raise _features_error(message, hint)
            features.append((name, "bytes"))
        return features

    def places(self, exts: Sequence[str]) -> tuple[RecordFeature, ...]:
        """Return the features of a sample with these parts, sorted by name.

        Features of label and class are included even if the sample has no label.

        Raises:
            ConfigError: ``config.invalid_value``: two features would have the same name.
        """
        features = list(self.of_sample)
        for number, ext in enumerate(exts):
            features += [
                RecordFeature(name, "content" if kind == "bytes" else "part", kind, number)
                for name, kind in self.of_part(ext)
            ]
        return tuple(sorted(features, key=lambda place: place.name.encode()))


def two_images(key: str) -> ConfigError:
    """Return the error for a sample with two parts that become the features of the image."""
    message = f"sample {key!r} has two parts that can be the image"
    return _features_error(message, "name the one in shards.features, such as image/encoded: .jpg")


def _features_error(message: str, hint: str) -> ConfigError:
    return ConfigError("config.invalid_value", message, where="shards.features", hint=hint)


def numbers(data: bytes, kind: str, where: str) -> list[int] | list[float]:
    """Parse decimal numbers separated by white space; ``float`` is float32.

    Raises:
        ObjectError: ``sample.undecodable``: the text is not numbers.
    """
    if len(data) > MOST_TEXT_BYTES:
        message = f"a text of more than {MOST_TEXT_BYTES:,} bytes is too long for a list of {kind}"
        raise _undecodable(message, where)
    words = data.split()
    return _int64s(words, where) if kind == "int64" else _floats(words, where)


def _int64s(words: Iterable[bytes], where: str) -> list[int]:
    values = []
    for word in words:
        value = int(word) if _INT64.fullmatch(word) else 2**63
        if not -(2**63) <= value < 2**63:
            raise _undecodable(f"{_shown(word)} is not an int64", where)
        values.append(value)
    return values


def _floats(words: Iterable[bytes], where: str) -> list[float]:
    values = []
    for word in words:
        if not _FLOAT.fullmatch(word):
            raise _undecodable(f"{_shown(word)} is not a number", where)
        value = float(word)
        if abs(value) >= _FLOAT32_END and word.strip(b"+-") != b"inf":
            raise _undecodable(f"{_shown(word)} is out of the range of a float32", where)
        values.append(value)
    return values


def _shown(word: bytes) -> str:
    text = repr(word)[1:]
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _undecodable(reason: str, where: str) -> ObjectError:
    hint = "fix or exclude the object, or make a feature of kind bytes of it"
    return ObjectError("sample.undecodable", reason, where=where, hint=hint)
