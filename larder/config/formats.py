"""The options that formats are made from: part of the shape of a segment, in its document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Feature:
    """What one feature of a record is made of: ``shards.features``.

    Attributes:
        source: ``part``; ``image``, the only part of the sample that is an image without a name of
            its own; ``label``, the number of its class; ``class``, the name of its class; or
            ``key``.
        kind: ``bytes``, ``int64`` or ``float``.
        part: The extension, if ``source`` is ``part``.
    """

    source: str
    kind: str
    part: str = ""


@dataclass(frozen=True, slots=True)
class Layout:
    """What all samples of a segment have in common, for formats that have to know it beforehand.

    Attributes:
        parts: By extension, the parts that samples may have; and their length in bytes, if it has
            to be the same in all of them.
    """

    parts: Mapping[str, int | None]
    labelled: bool


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Options of a format. Those at their default are left out of documents and identities.

    So an option that is added needs a default with which every format writes the bytes that it
    wrote before.

    Attributes:
        features: By name, the features of a record; None for those that the format documents.
        classes: Names of the classes in the order of their numbers, if a feature contains them.
        first_record: The number of the segment's first sample where records have numbers: all
            records of a version have different ones.
        layout: What the samples have in common, if the format asks for it; of a segment that was
            added to others, what all of their samples have in common.
    """

    features: Mapping[str, Feature] | None = None
    classes: tuple[str, ...] = ()
    first_record: int = 0
    layout: Layout | None = None


NUMBERED = frozenset({"recordio"})
"""The formats whose records have numbers."""

DEFAULTS = FormatOptions()
"""What a format is made from if nothing is configured."""


_WORDS = ("image", "label", "class", "key")
_KINDS = ("bytes", "int64", "float")


def parse_feature(text: str) -> Feature:
    """A feature as users write it: ``image``, ``label float``, ``.jpg``, ``.weight.txt float``.

    The kind may be left out: it is ``int64`` for a label and ``bytes`` for anything else.

    Raises:
        ValueError: What is wrong, as a clause.
    """
    source, _, kind = text.rpartition(" ")
    if not source or kind not in _KINDS:
        source, kind = text, "int64" if text == "label" else "bytes"
    if source in _WORDS:
        if kind != "bytes" and source != "label":
            raise ValueError(f"{source} is always bytes")
        return Feature(source, kind)
    ext = source.removeprefix(".")
    if ext == source or not ext or "/" in ext:
        words = ", ".join(_WORDS)
        raise ValueError(f"expected {words}, or a dot and the extension of a part, such as .jpg")
    if ext != ext.lower() or "jpeg" in ext.split("."):
        raise ValueError("extensions of parts are in lower case, with jpg for jpeg")
    return Feature("part", kind, ext)


class FormatUse(NamedTuple):
    """The format of some shards: the arguments of `larder.shards.formats.shard_format`."""

    name: str
    options: FormatOptions = DEFAULTS
