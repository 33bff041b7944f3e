"""Decoders of the parts of samples, built-in or of the user, and the user's builder of a cache.

A decoder is a function from the bytes of a part to arrays. `larder.samples.image_parts` decodes
images, under the name ``image``, unless the dataset file names another decoder for their extension.
Other parts are kept unchanged, unless the dataset file names a decoder. A builder
(``cache.builder``) makes the records of a cache itself.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import math
import re
import struct
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np

from larder.config.shape import BuilderUse, DecoderUse, use_of
from larder.errors import ConfigError, FatalError
from larder.forking import parsing
from larder.samples.image_parts import decoding, is_image
from larder.samples.indexed import Sample

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


class Decoder(NamedTuple):
    """A decoder for a kind of part.

    Attributes:
        decode: Makes an array of a part's bytes, or arrays by the names of ``fields``. It raises
            any exception for bytes that it cannot decode. Several threads call it at once.
        version: Version of the results; a change makes caches be built again.
        fields: Name of each array, after the part's field and a dot; empty for the field itself.
        expands: Bytes of memory needed for a byte of the part, including the arrays.
    """

    name: str
    decode: Callable[..., Any]
    version: str = "1"
    fields: tuple[str, ...] = ("",)
    expands: float = 2.0


class Bound(NamedTuple):
    """A decoder with its line in ``decoding``."""

    decoder: Decoder
    use: DecoderUse

    def names(self, field: str) -> tuple[str, ...]:
        """Return the cache fields that the decoder fills, if the part itself is ``field``."""
        return tuple(f"{field}.{name}" if name else field for name in self.decoder.fields)

    def needed_bytes(self, length: int) -> int:
        return int(length * self.decoder.expands)

    def decode(self, data: bytes, where: str, hint: str) -> dict[str, Array]:
        """Decode a part to an array for each of the decoder's ``fields``.

        Raises:
            ObjectError: ``sample.undecodable``: the decoder refuses the part, no cache can hold the
                elements, or the shape is not as configured.
            FatalError: ``cache.schema``: the decoder does not return arrays, or not its ``fields``.
        """
        parameters = json.loads(self.use.parameters) if self.use.parameters else {}
        what = f"{self.decoder.name} cannot decode it"
        with decoding(where, hint, what):
            result = self.decoder.decode(data, **parameters)
        arrays = self._arrays(result, where)
        with decoding(where, hint, what):
            for array in arrays.values():
                if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
                    raise ValueError(f"its elements are {array.dtype}, which no cache can hold")
            self._check_shape(arrays[self.decoder.fields[0]])
        return arrays

    def _arrays(self, result: Any, where: str) -> dict[str, Array]:
        names = self.decoder.fields
        given = result if isinstance(result, Mapping) else {names[0]: result}
        if given.keys() != set(names):
            message = f"{self.decoder.name} returned {_listed(given)} instead of {_listed(names)}"
            raise FatalError("cache.schema", message, where=where)
        for value in given.values():
            if not isinstance(value, np.ndarray | np.generic):
                message = f"{self.decoder.name} returned a {type(value).__name__}, not an array"
                raise FatalError("cache.schema", message, where=where, hint="return numpy arrays")
        return {name: np.asarray(given[name]) for name in names}

    def _check_shape(self, array: Array) -> None:
        wanted = self.use.shape
        if wanted is None:
            return
        fits = len(wanted) == array.ndim and all(
            size in (None, length) for size, length in zip(wanted, array.shape, strict=True)
        )
        if not fits:
            raise ValueError(f"its shape is {_shape(array.shape)}, not {_shape(wanted)}")


def kind_of(arrays: Arrays) -> str:
    """Return types and numbers of dimensions, equal in one cache: ``int16[2] and int64[0]``."""
    return " and ".join(f"{array.dtype.name}[{array.ndim}]" for array in arrays.values())


def _listed(names: Any) -> str:
    return ", ".join(sorted(map(repr, names))) or "nothing"


def _shape(shape: tuple[int | None, ...]) -> str:
    sizes = ["*" if size is None else str(size) for size in shape]
    return f"({', '.join(sizes)})"


_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_header(
    file: BinaryIO, versions: Collection[tuple[int, int]] = _HEADERS.keys()
) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the header of a .npy file: its shape, whether the order is by columns, and its dtype.

    https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

    Raises:
        ValueError, TypeError, RecursionError: The header is invalid, or of another version.
    """
    version = np.lib.format.read_magic(file)
    if version not in versions:
        raise ValueError(f"version {version[0]}.{version[1]} of the format is not supported")
    with parsing:
        shape, by_columns, dtype = _HEADERS[version](file)
    return shape, by_columns, dtype


def _npy(data: bytes) -> Array:
    """Decode an array; only the header is left to numpy.

    numpy allocates the size in the header before it looks for the elements.
    """
    file = io.BytesIO(data)
    shape, by_columns, dtype = read_header(file)
    if dtype.hasobject:
        raise ValueError("it has Python objects, which would have to be unpickled")
    size_bytes, wanted = len(data) - file.tell(), math.prod(shape) * dtype.itemsize
    if size_bytes != wanted:
        raise ValueError(f"it has {size_bytes} bytes of elements instead of {wanted}")
    flat = np.frombuffer(data, dtype, offset=file.tell()) if wanted else np.empty(0, dtype)
    return flat.reshape(shape, order="F" if by_columns else "C")


NPY = Decoder("npy", _npy, expands=2)
"""An array of any shape."""


def _raw(data: bytes) -> Array:
    return np.frombuffer(data, np.uint8)


BYTES = Decoder("bytes", _raw, expands=1)
"""uint8 of shape (bytes,), for images that a decoded cache keeps as files."""


def _text(data: bytes) -> Array:
    data.decode()
    return np.frombuffer(data, np.uint8)


TEXT = Decoder("text", _text, expands=5)
"""uint8 of shape (bytes,): the unchanged text, which must be UTF-8."""


_PCM, _FLOAT, _EXTENSIBLE = 1, 3, 0xFFFE
_DTYPES: Final = {
    (_PCM, 8): "u1",
    (_PCM, 16): "<i2",
    (_PCM, 24): "u1",
    (_PCM, 32): "<i4",
    (_FLOAT, 32): "<f4",
    (_FLOAT, 64): "<f8",
}
_FMT = struct.Struct("<HHIIHH")
_CHUNK_NAME: Final = re.compile(rb"[ -~]{4}")
_OTHER_LENGTH: Final = "its header says {} bytes of audio, and {} are there"


def _wav(data: bytes) -> dict[str, Array]:
    """Decode uncompressed audio in a RIFF file.

    Chunks follow Microsoft's and IBM's "Multimedia Programming Interface and Data Specifications
    1.0" and WAVEFORMATEXTENSIBLE. The module ``wave`` is not used. Python 3.11's refuses files that
    3.12's accepts, neither reads floating point, and neither detects a file cut short.
    """
    head, body = _wav_chunks(data)
    if len(head) < _FMT.size:
        raise ValueError("its chunk fmt is too short")
    tag, channels, rate, _, frame_bytes, bits = _FMT.unpack_from(head)
    if tag == _EXTENSIBLE and len(head) >= 26:
        (tag,) = struct.unpack_from("<H", head, 24)
    dtype = _DTYPES.get((tag, bits))
    if dtype is None:
        raise ValueError(f"its encoding, format {tag} of {bits} bits, is not supported")
    if not channels or frame_bytes != channels * bits // 8 or len(body) % frame_bytes:
        raise ValueError(f"{len(body)} bytes are no whole frames of {channels} channels")
    values = np.frombuffer(body, dtype)
    if bits == 24:
        values = _of_24_bits(values)
    return {"": values.reshape(-1, channels), "rate": np.asarray(rate, np.int64)}


def _wav_chunks(data: bytes) -> tuple[bytes, memoryview]:
    """Return the contents of the chunks ``fmt`` and ``data``.

    Writers that cannot seek back to the header, such as in a pipe, leave 0 or the largest number
    for the length. Such a file is refused, because it may be incomplete.
    """
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise ValueError("it is no WAV file of the kind RIFF (nor are RF64, RIFX and Wave64)")
    head, audio, at = b"", None, 12
    while _CHUNK_NAME.match(data, at):
        name, body = data[at : at + 4], at + 8
        length = int.from_bytes(data[at + 4 : body], "little")
        at = body + length + length % 2
        if name == b"fmt ":
            head = data[body : body + length]
        if name == b"data" and (length or audio is None):
            if body + length > len(data):
                raise ValueError(_OTHER_LENGTH.format(length, len(data) - body))
            if audio:
                raise ValueError("it has several chunks of audio")
            audio = memoryview(data)[body : body + length]
    if audio is None:
        raise ValueError("it has no audio")
    if not audio and not len(data) <= at <= len(data) + 1:
        raise ValueError(_OTHER_LENGTH.format(0, "more"))
    return head, audio


def _of_24_bits(values: Array) -> Array:
    wide = np.zeros((len(values) // 3, 4), np.uint8)
    wide[:, 1:] = values.reshape(-1, 3)
    return wide.view("<i4").reshape(-1) >> 8


WAV = Decoder("wav", _wav, fields=("", "rate"), expands=4)
"""(frames, channels), of the file's uint8, int16, int32, float32 or float64; 24 bits become int32
with the same values. The second field, ``rate``, has the frames per second: int64."""


DECODERS: Final = {decoder.name: decoder for decoder in (BYTES, NPY, TEXT, WAV)}
"""Decoders of parts that are not images, by name."""

IMAGE: Final = "image"
"""The decoder of images."""

MASK: Final = "mask"
"""The decoder of images whose pixels are numbers, not colours; pixels keep their values."""

IMAGES: Final = (IMAGE, MASK)

_FIELD: Final = re.compile("[A-Za-z0-9_]{0,63}")

_EXPANDS: Final = 16.0
"""Assumed ``expands`` of a user function without this attribute."""


class Decoders(NamedTuple):
    uses: tuple[DecoderUse, ...] = ()

    def is_image(self, ext: str) -> bool:
        use = use_of(self.uses, ext) if self.uses else None
        return use.use in IMAGES if use else is_image(ext)

    def is_mask(self, ext: str) -> bool:
        use = use_of(self.uses, ext) if self.uses else None
        return use is not None and use.use == MASK

    def of(self, ext: str) -> Bound | None:
        """Return the decoder for an extension; None for images, or if no decoder is named."""
        use = use_of(self.uses, ext) if self.uses else None
        return None if use is None or use.use in IMAGES else Bound(_decoder(use), use)

    def decodes(self, ext: str) -> bool:
        return self.is_image(ext) or use_of(self.uses, ext) is not None


IMAGES_ONLY: Final = Decoders()
"""Default decoders, for images alone."""


def resolved(uses: tuple[DecoderUse, ...]) -> tuple[DecoderUse, ...]:
    """Return the lines of ``decoding`` with the versions of their decoders."""
    return tuple(
        replace(use, version="1" if use.use in IMAGES else _decoder(use).version) for use in uses
    )


def _decoder(use: DecoderUse) -> Decoder:
    if use.use in DECODERS:
        return DECODERS[use.use]
    return _users(use.ext, use.use, use.parameters)


def function_of(where: str, name: str) -> Any:
    """Import the function ``module:function``; raise ``config.invalid_value`` on failure."""
    module, _, attribute = name.partition(":")
    try:
        function: Any = import_module(module)
        for part in attribute.split("."):
            function = getattr(function, part)
    except Exception as error:
        # Any exception: the module is the user's.
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        hint = "install its package, or name its folder in PYTHONPATH"
        raise _refused(where, f"{name} cannot be imported: {reason}", hint) from error
    if not callable(function):
        raise _refused(where, f"{name} is no function", "")
    return function


@cache
def _users(ext: str, name: str, parameters: str) -> Decoder:
    where = f"decoding.{ext}"
    module, colon, attribute = name.partition(":")
    if not (module and colon and attribute):
        names = ", ".join(sorted([*DECODERS, *IMAGES]))
        hint = f"the decoders are {names}; name one of your own as module:function"
        raise _refused(where, f"there is no decoder {name!r}", hint)
    function = function_of(where, name)
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


_BUILDER: Final = "cache.builder"
_DIVIDED: Final = ("shard_index", "shards")


class Builder(NamedTuple):
    """A function that yields an element for each sample.

    If it takes ``shard_index`` and ``shards``, it ``is_divided``: it may be called for some of the
    samples alone. ``digest`` is the digest of the source of its module.
    """

    name: str
    function: Callable[..., Any]
    inputs: Mapping[str, Any]
    is_divided: bool
    digest: str = ""

    def elements(self, samples: Iterator[Sample], shard: tuple[int, int]) -> Iterator[Any]:
        """Iterate over the elements of one of several shards; raise any error of the function."""
        division = dict(zip(_DIVIDED, shard, strict=True)) if self.is_divided else {}
        result = self.function(samples, **self.inputs, **division)
        as_numpy = getattr(result, "as_numpy_iterator", None)  # a method of tf.data.Dataset
        return iter(as_numpy() if as_numpy else result)


def resolved_builder(use: BuilderUse) -> BuilderUse:
    """Return the builder's use with the digest of the module's source."""
    return replace(use, digest=builder_of(use).digest)


@cache
def builder_of(use: BuilderUse) -> Builder:
    function, inputs = function_of(_BUILDER, use.use), json.loads(use.inputs)
    try:
        signature = inspect.signature(function)
        is_divided = set(_DIVIDED) <= signature.parameters.keys()
        signature.bind(iter(()), **inputs, **(dict.fromkeys(_DIVIDED, 1) if is_divided else {}))
    except (TypeError, ValueError) as error:
        hint = "it is called with an iterator of samples, and with builder_inputs by name"
        raise _refused(_BUILDER, f"{use.use} cannot be called: {error}", hint) from None
    try:
        source = Path(sys.modules[use.use.partition(":")[0]].__file__ or "").read_bytes()
    except (OSError, AttributeError):
        hint = "name a function of a module in Python"
        raise _refused(_BUILDER, f"{use.use} has no source file", hint) from None
    return Builder(use.use, function, inputs, is_divided, hashlib.sha256(source).hexdigest())
