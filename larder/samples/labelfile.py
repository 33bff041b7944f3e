"""Label files: text files that map names to classes, one per line.

A line is ``NAME CLASS``, separated by a tab, a comma or white space. If every line has a tab, tabs
separate; else if every line has a comma, commas do (both with the quotes of CSV); else the last
white space of a line does, so that names may contain spaces. A class may be followed by boxes, as
in Kaggle's ImageNet: the class is the first word of ``n03995372 85 1 499 272``.

A header needs no special treatment: it is a line with a name that no sample has.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Iterator, Sequence

from larder.errors import ConfigError

_BOXES = re.compile(r"(\S+)(?:\s+-?\d+){4}(?:\s+\S+(?:\s+-?\d+){4})*")


def parse_label_file(data: bytes, where: str) -> dict[str, str]:
    """The class, or its number in decimal digits, by name. A byte order mark is allowed.

    Raises:
        ConfigError: ``config.label``: not UTF-8, a line without a class or with more than two
            columns, a name with two classes.
    """
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
        raise ConfigError("config.label", message, where=where) from None


def _lines(text: str, where: str) -> Iterator[tuple[int, Sequence[str]]]:
    """The number and columns of each line that is not blank."""
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
        raise ConfigError("config.label", "expected a name and a class", where=where)
    boxes = _BOXES.fullmatch(label)
    return name, sys.intern(boxes[1] if boxes else label)
