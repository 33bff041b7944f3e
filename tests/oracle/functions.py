"""Functions of the rows, in a module that processes can import; the oracle calls them too."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
from PIL import Image

Values = dict[str, Any]


def built(samples: Any, *, rate: int) -> Any:
    """Records of a builder: the image, its sum times a rate, and the label."""
    for sample in samples:
        image = np.asarray(Image.open(io.BytesIO(sample.parts["png"])).convert("RGB"))
        yield {"image": image, "sum": np.int64(image.sum() * rate), "label": sample.label}


def head(value: Any) -> Any:
    """The first eight bytes of a text, as an array of one shape."""
    return np.frombuffer(bytes(value)[:8].ljust(8), np.uint8).astype(np.uint16)


def flipped(value: Any) -> Any:
    """An image upside down; a file backwards."""
    return value[::-1]


def crop(sample: Values, rng: np.random.Generator) -> Values:
    """A random piece of the image and of its mask, alike."""
    height, width, _ = sample["image"].shape
    top, left = rng.integers(height - 5), rng.integers(width - 5)
    step = -1 if rng.random() < 0.5 else 1
    found = {name: sample[name] for name in ("key", "label") if name in sample}
    for name in ("image", "image.seg"):
        if sample.get(name) is not None:
            piece = sample[name][top : top + 5, left : left + 5][:, ::step]
            found[name] = np.ascontiguousarray(piece)
    return found


def noise(sample: Values, rng: np.random.Generator) -> Values:
    """The sample, with numbers that were drawn."""
    return {**sample, "draws": rng.integers(0, 1 << 31, 4), "unit": rng.random()}


_kept: dict[int, list[tuple[Any, bytes]]] = {}


class Keeping:
    """The sample; its arrays are kept, and may not change while others are made.

    ``row`` is a number of its own for each row, or None for the oracle, which keeps nothing.
    """

    def __init__(self, row: int | None = None) -> None:
        self._row = row

    def value(self, value: Any) -> Any:
        if self._row is not None and isinstance(value, np.ndarray):
            kept = _kept.setdefault(self._row, [])
            if any(value.tobytes() != before for value, before in tuple(kept)):
                raise AssertionError("what a function has kept of an earlier sample has changed")
            kept.extend([(value, value.tobytes())] if len(kept) < 60 else [])
        return value

    def collated(self, samples: list[Values]) -> Any:
        return [{name: self.value(each) for name, each in one.items()} for one in samples]

    def __call__(self, sample: Values, rng: np.random.Generator) -> Values:
        kept = {name: self.value(each) for name, each in sample.items()}
        return {**kept, "draw": rng.integers(0, 1 << 31, 2)}


def listed(samples: list[Values]) -> Any:
    """The samples as they are."""
    return list(samples)


def sized(samples: list[Values]) -> Any:
    """How long the values are, and the images that there are."""
    names = sorted({name for sample in samples for name in sample})
    lengths = [[np.size(sample.get(name)) for name in names] for sample in samples]
    images = [sample["image"].copy() for sample in samples if sample.get("image") is not None]
    return {"names": names, "lengths": np.array(lengths), "images": images}


def is_large(rows: Any) -> Any:
    """Whether samples have more bytes than half of them."""
    return rows.bytes > np.median(rows.bytes)
