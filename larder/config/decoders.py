"""Which decoder makes arrays of which parts: part of the shape of a segment, in its document."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHAPE: Final = re.compile(r"((\*|[0-9]{1,18})(,(\*|[0-9]{1,18}))*)?")


@dataclass(frozen=True, slots=True)
class DecoderUse:
    """One line of ``decoding``. What is at its default is left out of documents and identities.

    Attributes:
        ext: The extension of the parts, or its last component.
        use: Name of a decoder, or ``module:function``.
        parameters: The arguments of the function as canonical JSON; empty if there are none.
        shape: The shape that its arrays must have, None for any size of a dimension; None for any.
        version: The version of the decoder; empty if it is not known yet.
    """

    ext: str
    use: str
    parameters: str = ""
    shape: tuple[int | None, ...] | None = None
    version: str = ""


def parse_decoder(ext: str, text: str) -> DecoderUse:
    """A line as users write it: ``wav``, ``npy shape=80,*``, ``module:function bands=80``.

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
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or not _NAME.fullmatch(name) or name in given:
            raise ValueError(f"expected words such as name=value, once each, not {word!r}")
        given[name] = value
    shape = given.pop("shape", None)
    if shape is not None and (not _SHAPE.fullmatch(shape) or use == "image"):
        raise ValueError("shape is like 80,* and not for images")
    if given and ":" not in use:
        raise ValueError("only functions of your own have parameters")
    parameters = _json({name: _value(value) for name, value in given.items()}) if given else ""
    return DecoderUse(ext, use, parameters, None if shape is None else _sizes(shape))


def decoder_uses(lines: Mapping[str, str]) -> tuple[DecoderUse, ...]:
    """All of ``decoding``, sorted by extension; the versions are not known here."""
    return tuple(parse_decoder(ext, text) for ext, text in sorted(lines.items()))


def use_of(uses: Iterable[DecoderUse], ext: str) -> DecoderUse | None:
    """The line that is about a part: that of its extension, or of the last component of it."""
    last, found = ext.rpartition(".")[2], None
    for use in uses:
        if use.ext == ext:
            return use
        if use.ext == last:
            found = use
    return found


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
