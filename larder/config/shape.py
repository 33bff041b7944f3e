"""Plain values that shape a segment: format options, images, decoders of parts.

The segment's document and identity contain these values, except values at their default.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Feature:
    """The source and type of one feature of a record: ``shards.features``.

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
    """Common properties of all samples of a segment, for formats that need them beforehand.

    Attributes:
        parts: Parts that samples may have, by extension; the value is the length in bytes if
            it must be the same in all samples, else None.
    """

    parts: Mapping[str, int | None]
    labelled: bool


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """Options of a format. Documents and identities leave out options at their default.

    So the default of a new option must not change the bytes that any format writes.

    Attributes:
        features: Features of a record by name; None for the features that the format documents.
        classes: Names of the classes in the order of their numbers, if a feature contains them.
        first_record: The number of the segment's first sample, for formats whose records have
            numbers. All records of a version have different numbers.
        layout: Common properties of the samples, if the format asks for them; for a segment that
            was added to earlier segments, common to the samples of all these segments.
    """

    features: Mapping[str, Feature] | None = None
    classes: tuple[str, ...] = ()
    first_record: int = 0
    layout: Layout | None = None


DEFAULTS = FormatOptions()
"""Options of a format if nothing is configured."""


_WORDS = ("image", "label", "class", "key")
_KINDS = ("bytes", "int64", "float")


def parse_feature(text: str) -> Feature:
    """Parse a feature such as ``image``, ``label float``, ``.jpg`` or ``.weight.txt float``.

    The default of the kind is ``int64`` for a label and ``bytes`` otherwise.

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
    version: int | None = None


@dataclass(frozen=True, slots=True)
class ImageShape:
    """``cache.images``: the shape of all images of a cache, but for the channels of masks."""

    height: int
    width: int
    channels: int


@dataclass(frozen=True, slots=True)
class BuilderUse:
    """``cache.builder``.

    Attributes:
        use: ``module:function``.
        inputs: ``cache.builder_inputs`` as canonical JSON.
        digest: Digest of the module's source; empty if not known yet.
    """

    use: str
    inputs: str
    digest: str = ""


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHAPE: Final = re.compile(r"((\*|[0-9]{1,18})(,(\*|[0-9]{1,18}))*)?")


@dataclass(frozen=True, slots=True)
class DecoderUse:
    """One line of ``decoding``. Documents and identities leave out values at their default.

    Attributes:
        ext: The extension of the parts, or its last component.
        use: Name of a decoder, or ``module:function``.
        parameters: The arguments of the function as canonical JSON; may be empty.
        shape: Required shape of the arrays, with None for any size of a dimension; None for any
            shape.
        version: The version of the decoder; empty if it is not known yet.
    """

    ext: str
    use: str
    parameters: str = ""
    shape: tuple[int | None, ...] | None = None
    version: str = ""


def parse_decoder(ext: str, text: str) -> DecoderUse:
    """Parse a line such as ``wav``, ``npy shape=80,*`` or ``module:function bands=80``.

    After the name of the decoder come words with an equals sign: ``shape``, or a parameter of the
    function. A value is a string, unless it is ``true``, ``false`` or a number.

    Raises:
        ValueError: What is wrong, as a clause.
    """
    if "jpeg" in ext.split("."):
        raise ValueError("extensions of parts have jpg for jpeg")
    use, *words = text.split() or [""]
    if not use or "=" in use:
        raise ValueError("expected the name of a decoder, such as wav, or module:function")
    arguments: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or name in arguments:
            raise ValueError(f"expected words such as name=value, once each, not {word!r}")
        arguments[name] = value
    shape = arguments.pop("shape", None)
    if shape is not None and (not _SHAPE.fullmatch(shape) or use in ("image", "mask")):
        raise ValueError("shape is like 80,* and not for images")
    if arguments and ":" not in use:
        raise ValueError("only functions of your own have parameters")
    parameters = (
        _json({name: _value(value) for name, value in arguments.items()}) if arguments else ""
    )
    return DecoderUse(ext, use, parameters, None if shape is None else _sizes(shape))


def builder_use(builder: str, inputs: Mapping[str, Any]) -> BuilderUse:
    """Make ``cache.builder`` with ``cache.builder_inputs``, without the digest."""
    return BuilderUse(builder, _json(inputs))


def decoder_uses(lines: Mapping[str, str]) -> tuple[DecoderUse, ...]:
    """List all of ``decoding``, sorted by extension, without versions."""
    return tuple(parse_decoder(ext, text) for ext, text in sorted(lines.items()))


def use_of(uses: Iterable[DecoderUse], ext: str) -> DecoderUse | None:
    """Find the line for a part by its extension, or by the extension's last component."""
    by_ext = {use.ext: use for use in uses}
    return by_ext.get(ext) or by_ext.get(ext.rpartition(".")[2])


def _sizes(shape: str) -> tuple[int | None, ...]:
    return tuple(None if size == "*" else int(size) for size in shape.split(",") if size)


def _value(text: str) -> Any:
    try:
        value = json.loads(text, parse_constant=str)
    except ValueError:
        return text
    return value if isinstance(value, int | float) and math.isfinite(value) else text


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


MAX_PIXELS: Final = 178_956_970
"""The default of ``images.max_pixels``: Pillow's limit against decompression bombs."""


@dataclass(frozen=True, slots=True)
class Transform:
    """``shards.images``. Documents and identities leave out options at their default.

    Attributes:
        resize: Length of the shorter side, pixels; None to keep the size.
        format: ``keep``, ``jpeg`` or ``png``.
        quality: Quality of JPEGs, 1 to 100.
        masks: Extensions of parts whose pixels are numbers, not colours.
        codecs: Versions of the encoding libraries by name, which decide about the bytes; None if
            not known yet.
    """

    resize: int | None = None
    enlarge: bool = False
    format: str = "keep"
    quality: int = 90
    masks: tuple[str, ...] = ()
    codecs: Mapping[str, str] | None = None

    def options(self) -> Transform:
        """Return the transform as configured, without the codecs."""
        return replace(self, codecs=None)


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """Allowed images of a segment, their transform, and decoders of other parts.

    Attributes:
        transform: ``shards.images``; None to store images as they are.
        decoders: ``decoding``, sorted by extension.
    """

    max_pixels: int = MAX_PIXELS
    transform: Transform | None = None
    decoders: tuple[DecoderUse, ...] = ()

    @property
    def uses(self) -> tuple[DecoderUse, ...]:
        """Decoders of parts as they are stored, including the masks of the transform."""
        masks = self.transform.masks if self.transform else ()
        stored = (DecoderUse(f"{name}.png", "mask", version="1") for name in masks)
        return (*stored, *self.decoders)
