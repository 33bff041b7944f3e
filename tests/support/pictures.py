"""Pictures of every kind, and a slow and simple twin of docs/reference/images.md."""

import io
import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from tests.image_files import png_chunk, png_of, saved, tiff_file

Array = np.ndarray[Any, Any]

MODES = (
    *("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB"),
    *("HSV", "I", "I;16", "I;16L", "I;16B", "I;16N", "F"),
)
FORMATS = ("PNG", "TIFF", "JPEG", "WEBP", "GIF", "BMP", "PPM", "JPEG2000", "MPO")
SIZES = ((1, 1), (1, 9), (9, 1), (5, 4), (4, 5), (12, 12), (31, 17), (16, 40))
RESIZES = (1, 3, 4, 5, 12, 17, 23)
_ORIENTATION = 0x0112


class Picture(NamedTuple):
    """An image file. ``source`` has its pixels as they are shown upright, if no encoder changes
    them: the elements of its mode, (height, width, channels).
    """

    name: str
    data: bytes
    source: Array | None


def noise(mode: str, size: tuple[int, int], seed: int) -> Image.Image:
    """An image of any mode, also of those that no file has."""
    rng, (width, height) = np.random.default_rng(seed), size
    image = Image.new(mode, size)
    if mode == "1":
        return Image.fromarray(rng.integers(0, 2, (height, width)).astype(bool))
    data = rng.integers(0, 256, len(image.tobytes()), np.uint8)
    if mode == "F":
        data = rng.normal(size=width * height).astype("<f4").view(np.uint8)
    if mode == "I":
        data = rng.integers(0, 65_536, width * height).astype("<i4").view(np.uint8)
    if mode in ("La", "RGBa"):  # colours are at most alpha
        pixels = data.reshape(width * height, -1)
        pixels[:] = np.minimum(pixels, pixels[:, -1:])
    image.frombytes(data.tobytes())
    if mode in ("P", "PA"):
        image.putpalette(rng.integers(0, 256, 768, np.uint8).tobytes())
    return image


def upright(array: Array, orientation: int) -> Array:
    """Apply an orientation of TIFF and EXIF."""
    if orientation >= 5:
        array = array.swapaxes(0, 1)
    rows = -1 if orientation in (3, 4, 7, 8) else 1
    columns = -1 if orientation in (2, 3, 6, 7) else 1
    return array[::rows, ::columns]


def _elements(image: Image.Image) -> Array:
    array = np.asarray(image)
    return array.reshape(*array.shape[:2], -1)


def _by_pillow(mode: str, format_: str, size: tuple[int, int], turn: int, seed: int) -> Picture:
    image, exif = noise(mode, size, seed), Image.Exif()
    exif[_ORIENTATION] = turn
    options: dict[str, Any] = {"exif": exif} if format_ not in ("GIF", "BMP", "PPM") else {}
    if format_ == "WEBP":
        options |= {"lossless": True, "exact": True}
    data = saved(image, format_, **options)
    with Image.open(io.BytesIO(data)) as found:
        exact = found.mode == mode and format_ not in ("JPEG", "MPO")
    source = _elements(image) if exact and mode not in ("P", "PA") else None
    if source is not None and format_ == "TIFF":
        source = upright(source, turn)
    return Picture(f"{mode} {format_} {size} {turn}", data, source)


def _with_a_clear_colour(mode: str, size: tuple[int, int], seed: int) -> Picture:
    """A PNG with the chunk tRNS: alpha of a palette's colours, or one transparent colour."""
    image = noise(mode, size, seed)
    clear: Any = bytes(range(0, 256, 3)) if mode == "P" else image.getpixel((0, 0))
    data = saved(image, "PNG", transparency=1 if mode == "1" else clear)
    return Picture(f"{mode} tRNS {size}", data, None if mode == "P" else _elements(image))


def _tiff(kind: int, order: str, size: tuple[int, int], turn: int, seed: int) -> Picture:
    """A TIFF of either byte order: of 8, 16 and 32 bits, and with both kinds of alpha."""
    width, height = size
    dtypes = ["u1", "u2", "i2", "i4", "f4", "u1", "u1", "u1", "u1"]
    channels = [1, 1, 1, 1, 1, 3, 4, 4, 2][kind]
    shape = (height, width, channels) if channels > 1 else (height, width)
    array = np.random.default_rng(seed).integers(0, 200, shape).astype(dtypes[kind])
    array = array * 320 if dtypes[kind] == "u2" else array
    extra = {6: 2, 7: 1, 8: 2}.get(kind)
    if extra == 1:
        array[..., :3] = np.minimum(array[..., :3], array[..., 3:])
    photometric = 2 if channels > 2 else 1
    data = tiff_file(array, photometric=photometric, order=order, orientation=turn, extra=extra)
    source = upright(array.reshape(height, width, -1), turn)
    return Picture(f"TIFF {kind} {order} {size} {turn}", data, None if extra == 1 else source)


def _deep(colour: int, size: tuple[int, int], seed: int) -> Picture:
    """A PNG of 16 bits: with alpha, or in colour, Pillow reads the upper byte."""
    width, height = size
    channels = {0: 1, 2: 3, 4: 2, 6: 4}[colour]
    array = np.random.default_rng(seed).integers(0, 65_536, (height, width, channels), np.uint16)
    clear = png_chunk(b"tRNS", array[0, 0].astype(">u2").tobytes()) if colour in (0, 2) else b""
    data = png_of(array[..., 0] if channels == 1 else array, colour, clear)
    source = array if channels == 1 else array >> 8
    return Picture(
        f"PNG 16 {colour} {size}", data, source[..., [0, 0, 0, 1]] if colour == 4 else source
    )


def pictures(rounds: int, first: int = 0) -> Iterator[Picture]:
    """Every kind once in a round; sizes and orientations change with the kind and the round."""
    kinds: list[tuple[Any, ...]] = []
    for mode, format_ in itertools.product(MODES, FORMATS):
        try:
            saved(noise(mode, (5, 4), 0), format_)
        except (OSError, KeyError, ValueError):
            continue
        kinds.append((_by_pillow, mode, format_))
    kinds += [(_with_a_clear_colour, mode) for mode in ("1", "L", "P", "RGB")]
    kinds += [(_tiff, kind, order) for kind, order in itertools.product(range(9), "<>")]
    kinds += [(_deep, colour) for colour in (0, 2, 4, 6)]
    for number, (round_, (make, *kind)) in enumerate(
        itertools.product(range(first, first + rounds), kinds)
    ):
        size = SIZES[(number + round_) % len(SIZES)]
        turn = [] if make in (_with_a_clear_colour, _deep) else [number * 5 % 8 + 1]
        yield make(*kind, size, *turn, number)


def bands(data: bytes) -> tuple[str, Array, Array | None, int]:
    """Read a file with Pillow and convert it with numpy alone: the kind of its elements, its
    colours or grey, its alpha, and an orientation that is not applied.
    """
    with Image.open(io.BytesIO(data)) as image:
        turn = 1 if image.format == "TIFF" else image.getexif().get(_ORIENTATION, 1)
        image.load()
    found, alpha, mode = _elements(image), None, image.mode
    clear = image.info.get("transparency")
    if mode in ("LA", "RGBA", "La", "RGBa", "PA"):
        found, alpha = found[..., :-1], found[..., -1:]
    if mode in ("P", "PA"):
        palette = np.zeros((256, 3), np.uint8)
        listed = np.array(image.getpalette("RGB"), np.uint8).reshape(-1, 3)
        palette[: len(listed)] = listed
        if clear is not None and alpha is None:
            table = np.full(256, 255, np.uint8)
            if isinstance(clear, bytes):
                table[: len(clear)] = list(clear)
            else:
                table[clear] = 0
            alpha = table[found]
        found = palette[found[..., 0]]
    elif mode == "1":
        found = found.astype(np.uint8) * 255
    elif mode == "CMYK":
        ink, black = 255 - found[..., :3].astype(int), 255 - found[..., 3:].astype(int)
        found = np.rint(ink * black / 255).astype(np.uint8)
    elif mode in ("YCbCr", "LAB", "HSV"):
        found = _elements(image.convert("RGB"))
    elif mode == "RGBX":
        found = found[..., :3]
    if clear is not None and mode in ("1", "L", "RGB"):
        same = (found == np.array(clear)).all(axis=2, keepdims=True)
        alpha = np.where(same, 0, 255).astype(np.uint8)
    dtype = "<u2" if mode.startswith("I;16") else found.dtype
    return mode, found.astype(dtype), alpha, turn


def numbers(data: bytes) -> Array:
    """The elements of a mask: the numbers of a palette, alpha dropped."""
    with Image.open(io.BytesIO(data)) as image:
        image.load()
    if image.mode in ("1", "P"):
        return _elements(image).astype(np.uint8)
    return bands(data)[1]


def by_bands(array: Array, size: tuple[int, int], method: Image.Resampling) -> Array:
    """Resize each band as an image of its own; ``size`` is the width and the height."""
    resized = [
        np.asarray(Image.fromarray(np.ascontiguousarray(array[..., band])).resize(size, method))
        for band in range(array.shape[2])
    ]
    return np.stack(resized, axis=2)


def square(array: Array) -> Array:
    side = min(array.shape[:2])
    top, left = ((length - side) // 2 for length in array.shape[:2])
    return array[top : top + side, left : left + side]
