"""What decodes the parts of samples: decoders by name, and functions of the user's.

Images are decoded by `larder.samples.images`, under the name ``image``, unless the dataset file
names another decoder for their extension. Other parts are kept as they are, unless it names one.
"""

from __future__ import annotations

import inspect
import json
import re
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from typing import Any, Final

from larder.config.shape import DecoderUse, use_of
from larder.errors import ConfigError
from larder.samples.decoders.base import Array, Bound, Decoder, kind_of
from larder.samples.decoders.builtin import BYTES, NPY, TEXT, WAV
from larder.samples.images import is_image

__all__ = [
    "DECODERS",
    "IMAGE",
    "IMAGES_ONLY",
    "Array",
    "Bound",
    "Decoder",
    "Decoders",
    "kind_of",
    "resolved",
]

DECODERS: Final = {decoder.name: decoder for decoder in (BYTES, NPY, TEXT, WAV)}
"""By name, what decodes parts that are not images."""

IMAGE: Final = "image"
"""The decoder of images."""

_FIELD: Final = re.compile("[A-Za-z0-9_]{0,63}")

_EXPANDS: Final = 16.0
"""What a function of the user's is taken to need, unless it says."""


@dataclass(frozen=True, slots=True)
class Decoders:
    uses: tuple[DecoderUse, ...] = ()

    def is_image(self, ext: str) -> bool:
        use = use_of(self.uses, ext) if self.uses else None
        return use.use == IMAGE if use else is_image(ext)

    def of(self, ext: str) -> Bound | None:
        """What else decodes parts with this extension; None if nothing does."""
        use = use_of(self.uses, ext) if self.uses else None
        return None if use is None or use.use == IMAGE else Bound(_decoder(use), use)

    def decodes(self, ext: str) -> bool:
        return self.is_image(ext) or use_of(self.uses, ext) is not None


IMAGES_ONLY: Final = Decoders()
"""Images are decoded, other parts are not."""


def resolved(uses: tuple[DecoderUse, ...]) -> tuple[DecoderUse, ...]:
    """The same with the versions of the decoders."""
    return tuple(
        replace(use, version="1" if use.use == IMAGE else _decoder(use).version) for use in uses
    )


def _decoder(use: DecoderUse) -> Decoder:
    if use.use in DECODERS:
        return DECODERS[use.use]
    return _users(use.ext, use.use, use.parameters)


@cache
def _users(ext: str, name: str, parameters: str) -> Decoder:
    where = f"decoding.{ext}"
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        names = ", ".join(sorted([*DECODERS, IMAGE]))
        hint = f"the decoders are {names}; name one of your own as module:function"
        raise _refused(where, f"there is no decoder {name!r}", hint)
    try:
        function: Any = import_module(module)
        for part in attribute.split("."):
            function = getattr(function, part)
    except Exception as error:
        # Any exception: the module is anybody's.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "install its package, or name its folder in PYTHONPATH"
        raise _refused(where, f"{name} cannot be imported: {reason}", hint) from error
    if not callable(function):
        raise _refused(where, f"{name} is no function", "")
    try:
        inspect.signature(function).bind(b"", **(json.loads(parameters) if parameters else {}))
    except (TypeError, ValueError) as error:
        hint = "it is called with the bytes of a part, and with its parameters by name"
        raise _refused(where, f"{name} cannot be called: {error}", hint) from None
    version = getattr(function, "version", None)
    if isinstance(version, bool) or not isinstance(version, int | str) or version == "":
        hint = f"set {attribute}.version = 1, and change it whenever its results change"
        raise _refused(where, f"{name} has no version", hint)
    fields, expands = getattr(function, "fields", ("",)), getattr(function, "expands", _EXPANDS)
    if not _are_fields(fields) or not isinstance(expands, int | float) or not expands > 0:
        hint = 'fields is a tuple of different names, such as ("", "rate"); expands a number'
        raise _refused(where, f"{name} has invalid attributes", hint)
    return Decoder(name, function, str(version), tuple(fields), float(expands))


def _are_fields(fields: Any) -> bool:
    return (
        isinstance(fields, tuple | list)
        and len(fields) == len(set(fields)) > 0
        and all(isinstance(name, str) and _FIELD.fullmatch(name) for name in fields)
    )


def _refused(where: str, message: str, hint: str) -> ConfigError:
    return ConfigError("config.invalid_value", message, where=where, hint=hint)
