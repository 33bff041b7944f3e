"""The label of a sample: from its folder, its key, a column, or a label file for its split.

Classes are collected as they occur, and numbered when all classes are known.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import filterfalse
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from larder.config.models.dataset import Labels
from larder.disk import LOOKS
from larder.errors import ConfigError, Failure, Failures
from larder.samples.arrow_columns import column_texts
from larder.samples.naming import KeyPattern
from larder.units import format_count, format_names

_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"\+?(-?)0*([0-9]+?)(?:\.0*)?")
CLASS_LOOKS = "case, Unicode form, space or the notation of a number"
"""Differences between class names that look alike."""

_INVISIBLE = str.maketrans("", "", "\u200b\u2060\ufeff")

_Given = tuple[str, str]
"""A label file and a text of the file; the file is empty for a folder, a key or a column."""


def class_numbers(
    texts: Mapping[str, Collection[str]],
    pinned: Sequence[str] | None = None,
    published: Sequence[str] = (),
) -> tuple[tuple[str, ...], dict[_Given, int]]:
    """Number the classes of a dataset: the only place where a class gets its number.

    ===================== ==========================================================
    classes               numbers
    ===================== ==========================================================
    pinned                places in ``labels.classes``
    published             unchanged; new classes follow
    all whole numbers     numeric order: 0 to n-1 are their own numbers
    some names            order of UTF-8 bytes, whole numbers among them
    ===================== ==========================================================

    A whole number has the form that `str` gives: ``007``, ``+1`` and ``1.0`` are names. If no class
    is a whole number, an origin with only whole numbers has places, from 0: a label file beside
    folders, keys or a column, and any origin beside pinned classes.

    Args:
        texts: Texts by label file; texts of folders, keys or a column are under "".
        pinned: ``labels.classes``.
        published: Classes of the previous version.

    Returns:
        The classes, and the number of each text that is a class.
    """
    if pinned is None:
        elsewhere = {*texts.get("", ())}
        in_files = {text for file, each in texts.items() if file for text in each}
        named = elsewhere.union(published)
        if not elsewhere or whole_numbers(named) or names_among(in_files):
            named |= in_files
        order: Callable[[str], Any] = str.encode if names_among(named) else Decimal
        pinned = (*published, *sorted(named.difference(published), key=order))
    numbers = {name: number for number, name in enumerate(pinned)}
    places = {} if whole_numbers(pinned) else {str(number): number for number in numbers.values()}
    of_texts: dict[_Given, int] = {}
    for file, each in texts.items():
        known = numbers if names_among(each) else numbers | places
        of_texts |= {(file, text): known[text] for text in each if text in known}
    return tuple(pinned), of_texts


def whole_numbers(texts: Iterable[str]) -> list[str]:
    return list(filter(_WHOLE_NUMBER.fullmatch, texts))


def names_among(texts: Iterable[str]) -> list[str]:
    return list(filterfalse(_WHOLE_NUMBER.fullmatch, texts))


def class_looks(name: str) -> str:
    """Fold `CLASS_LOOKS`."""
    text = " ".join(LOOKS(name.translate(_INVISIBLE)).split())
    number = _NUMBER.fullmatch(text)
    return f"{number[1]}{number[2]}" if number else text


def permuted(classes: Sequence[str]) -> list[str]:
    """List the classes 0 to n-1, in any notation, that are not their own numbers."""
    looks = [class_looks(name) for name in classes]
    own = list(map(str, range(len(classes))))
    if sorted(looks) != sorted(own):
        return []
    return [name for name, look, number in zip(classes, looks, own, strict=True) if look != number]


class Numbering(NamedTuple):
    """The classes, and the number of the class by code of a `ClassTable`: int32."""

    classes: tuple[str, ...]
    labels: npt.NDArray[np.int32]


class ClassTable:
    """A table that assigns a code to every class that occurs; `number` turns codes into labels.

    Messages name ``origin``, the source of classes other than label files.
    """

    def __init__(
        self, pinned: Sequence[str] | None, published: Sequence[str] = (), origin: str = "folder"
    ) -> None:
        self._pinned = pinned
        self._published = tuple(published)
        self._origin = origin
        self._codes: dict[_Given, int] = {}
        self._firsts: list[str] = []
        twice = next((name for name, count in Counter(pinned or ()).items() if count > 1), None)
        if twice is not None:
            raise ConfigError("config.label", f"duplicate class {twice!r}", where="labels.classes")

    def code(self, text: str, *, sample_key: str, file: str = "") -> int:
        """Return the code of a class; ``file`` is empty if no label file has it."""
        code = self._codes.setdefault((file, text), len(self._firsts))
        if code == len(self._firsts):
            self._firsts.append(sample_key)
        return code

    def number(self) -> Numbering:
        """Number the classes; raise ``config.label`` for a text that is not a class."""
        texts: dict[str, list[str]] = {}
        for file, text in self._codes:
            texts.setdefault(file, []).append(text)
        classes, numbers = class_numbers(texts, self._pinned, self._published)
        if unknown := [given for given in self._codes if given not in numbers]:
            raise self._unknown(unknown, classes)
        labels = np.array([numbers[given] for given in self._codes], np.int32)
        return Numbering(classes=classes, labels=labels)

    def _unknown(self, unknown: Sequence[_Given], classes: Sequence[str]) -> ConfigError:
        (file, text), *others = unknown
        message = f"its {f'file {file}' if file else self._origin} gives it class "
        if alike := [name for name in classes if class_looks(name) == class_looks(text)]:
            message += f"{text!a}, but the class is {alike[0]!a}: they differ by {CLASS_LOOKS}"
        elif len(classes) == 1:
            message += f"{text!r}, but the only class is {classes[0]!r}"
        else:
            message += f"{text!r}, which is not one of the {format_count(len(classes), 'class')}"
        if others:
            message += f"; neither are {format_names([repr(other) for _, other in others], 3)}"
        them = "them" if others else "it"
        hint = f"add {them} to labels.classes" if self._pinned is not None else "see labels.classes"
        where = self._firsts[self._codes[file, text]]
        return ConfigError("config.label", message, where=where, hint=hint)


_FOLDER = r"(?:^|/)(?P<folder>[^/]+)/[^/]+$"
_NO_LABEL = -1
_SHOWN = 3
_Codes = npt.NDArray[np.int32]

_Refusal = tuple[str, str]
"""The reason why a sample has no label, and the hint."""

_WITHOUT_FOLDER = (
    "no folder to take the label from",
    "labels.from: folder needs DIRECTORY/NAME; use labels.files, or remove labels",
)
_UNMATCHED = (
    "the pattern of labels.pattern finds no class in this sample key",
    "change the pattern, or exclude the sample with source.exclude",
)


class Labeller:
    """A labeller of samples by codes; `number` turns codes into labels when all samples are known.

    The class of a sample is the name of its immediate parent folder, the first group of a pattern
    in its key, or a text from a table. If the folder is an archive (only with ``archives``),
    ``.tar`` is left out. In a split with a label file, names are looked up in this order: the key
    of a part, the sample key, the base name of a part, the base name of the sample key.
    ``label_files`` has the bytes of ``labels.files`` by split.
    """

    def __init__(
        self,
        labels: Labels,
        split_names: Sequence[str],
        label_files: Mapping[str, bytes],
        known_classes: Sequence[str] = (),
        *,
        archives: bool = False,
    ) -> None:
        self._archives = archives
        origins = {"pattern": "key", "column": f"column {labels.column!r}"}
        self._origin = origins.get(labels.source, "folder")
        self._table = ClassTable(labels.classes, known_classes, self._origin)
        self.from_column = labels.source == "column"
        pattern = labels.pattern
        self._pattern = None if pattern is None else KeyPattern(pattern, "labels.pattern")
        self._unlabelled = Failures()
        self._hint = ""
        files = {
            key: _LabelTexts(key, parse_label_file(label_files[split], key))
            for split, key in labels.files.items()
        }
        self._files = {split_names.index(split): files[key] for split, key in labels.files.items()}

    def codes(
        self,
        splits: npt.NDArray[np.int16],
        sample_keys: pa.Array,
        parts: pa.Array,
        texts: pa.Array | None = None,
    ) -> _Codes:
        """Label samples by code; samples without a label get -1, until `number` refuses them.

        The arrays have one value per sample. ``parts`` has lists of structs with a field ``key``;
        ``texts`` has classes or nulls, if labels come from a column.
        """
        codes = np.empty(len(splits), np.int32)
        for split in np.unique(splits).tolist():
            rows = np.flatnonzero(splits == split)
            chosen = pa.array(rows)
            keys = sample_keys.take(chosen)
            if split in self._files:
                codes[rows] = self._from_file(split, keys, parts.take(chosen))
            elif texts is not None:
                message = f"no annotation or row gives this sample a class in {self._origin}"
                without = message, "add it, or exclude the sample with source.exclude"
                codes[rows] = self._coded(keys, texts.take(chosen), without)
            elif self._pattern:
                names = [name or None for name in self._pattern.groups(column_texts(keys))]
                codes[rows] = self._coded(keys, pa.array(names, pa.string()), _UNMATCHED)
            else:
                codes[rows] = self._from_folder(keys)
        return codes

    def number(self) -> Numbering:
        """Number the classes; refuse samples without a label."""
        if not (count := self._unlabelled.count):
            return self._table.number()
        first, *_ = self._unlabelled.shown
        message = first.message
        if count > 1:
            names = format_names([each.key for each in self._unlabelled.shown], _SHOWN, total=count)
            message += f"; {count:,} samples have no label: {names}"
        raise ConfigError("config.label", message, where=first.key, hint=self._hint)

    def _from_folder(self, sample_keys: pa.Array) -> _Codes:
        folders = pc.struct_field(pc.extract_regex(sample_keys, _FOLDER), "folder")
        if self._archives:
            folders = pc.replace_substring_regex(folders, r"(?i)(.)\.tar$", r"\1")
        return self._coded(sample_keys, folders, _WITHOUT_FOLDER)

    def _from_file(self, split: int, sample_keys: pa.Array, parts: pa.Array) -> _Codes:
        file = self._files[split]
        part_keys = iter(column_texts(parts.flatten().field("key")))
        counts = pc.list_value_length(parts).to_numpy().tolist()
        texts = [
            file.text_of(sample_key, [next(part_keys) for _ in range(count)])
            for sample_key, count in zip(column_texts(sample_keys), counts, strict=True)
        ]
        hint = "it may name the key, the sample key or the base name, with or without extension"
        without = f"the label file {file.key} does not name this sample", hint
        return self._coded(sample_keys, pa.array(texts, pa.string()), without, file=file.key)

    def _coded(
        self,
        sample_keys: pa.Array,
        names: pa.Array,
        without: _Refusal,
        *,
        file: str = "",
    ) -> _Codes:
        """Return the code of each sample's class; ``without`` is the refusal for null."""
        if names.null_count:
            message, hint = without
            self._hint = self._hint or hint
            keys = sample_keys.filter(names.is_null()).slice(0, self._unlabelled.room).to_pylist()
            failures = (Failure(key, "config.label", message) for key in keys)
            self._unlabelled.add_counted(failures, names.null_count)
        encoded = names.dictionary_encode()
        indices = encoded.indices.fill_null(-1).to_numpy()
        present, places = np.unique(indices, return_index=True)
        firsts = sample_keys.take(pa.array(places[present >= 0])).to_pylist()
        codes = [
            self._table.code(name, sample_key=sample_key, file=file)
            for name, sample_key in zip(encoded.dictionary.to_pylist(), firsts, strict=True)
        ]
        of_samples: _Codes = np.array([*codes, _NO_LABEL], np.int32)[indices]
        return of_samples


class _LabelTexts:
    """Texts of a label file by name; a name fits at most one sample."""

    def __init__(self, key: str, texts: Mapping[str, str]) -> None:
        self.key = key
        self._texts = texts
        self._samples: dict[str, str] = {}

    def text_of(self, sample_key: str, part_keys: Sequence[str]) -> str | None:
        names = _names(sample_key, part_keys)
        name = next((name for name in names if name in self._texts), None)
        if name is None:
            return None
        first = self._samples.setdefault(name, sample_key)
        if first != sample_key:
            message = f"{name!r} fits several samples: {first} and {sample_key}"
            hint = "name each of them by its key"
            raise ConfigError("config.label", message, where=self.key, hint=hint)
        return self._texts[name]


def _names(sample_key: str, part_keys: Sequence[str]) -> Iterator[str]:
    """Yield the names that a label file may use for a sample, the most specific first."""
    yield from part_keys
    yield sample_key
    for part_key in part_keys:
        yield part_key.rpartition("/")[2]
    yield sample_key.rpartition("/")[2]


_BOXES = re.compile(r"(\S+)(?:\s+-?\d+){4}(?:\s+\S+(?:\s+-?\d+){4})*")


def parse_label_file(data: bytes, where: str) -> dict[str, str]:
    """Return the class, or its number in decimal digits, by name; allow a byte order mark."""
    labels: dict[str, str] = {}
    for line, fields in _lines(_text(data, where), where):
        name, label = _name_and_label(fields, f"{where}, line {line}")
        if labels.setdefault(name, label) != label:
            message = f"{name!r} has class {label!r} here and {labels[name]!r} above"
            raise ConfigError("config.label", message, where=f"{where}, line {line}")
    return labels


def _text(data: bytes, where: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        message = f"the label file is not UTF-8 at byte {error.start}"
        raise ConfigError("config.label", message, where=where, hint="save it as UTF-8") from None


def _lines(text: str, where: str) -> Iterator[tuple[int, Sequence[str]]]:
    lines = text.replace("\r\n", "\n").rstrip("\n").split("\n")
    filled = [line for line in lines if line.strip()]
    for separator in "\t,":
        if filled and all(separator in line for line in filled):
            return _csv_lines(lines, separator, where)
    return ((at, line.rsplit(None, 1)) for at, line in enumerate(lines, 1) if line.strip())


def _csv_lines(
    lines: Sequence[str], separator: str, where: str
) -> Iterator[tuple[int, Sequence[str]]]:
    reader = csv.reader(lines, delimiter=separator, strict=True)
    try:
        for fields in reader:
            if "".join(fields).strip():
                yield reader.line_num, fields
    except csv.Error as error:
        at = f"{where}, line {reader.line_num}"
        raise ConfigError("config.label", f"not a line of CSV: {error}", where=at) from None


def _name_and_label(fields: Sequence[str], where: str) -> tuple[str, str]:
    if len(fields) > 2:
        message = f"{len(fields)} columns, but a label file has only a name and a class"
        raise ConfigError("config.label", message, where=where)
    name, label = (field.strip() for field in (*fields, "")[:2])
    if not name or not label:
        message, hint = "expected a name and a class", "write NAME CLASS, as in cats/1.jpg cat"
        raise ConfigError("config.label", message, where=where, hint=hint)
    boxes = _BOXES.fullmatch(label)
    return name, sys.intern(boxes[1] if boxes else label)
