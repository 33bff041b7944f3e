"""Generated images in the layout of ImageNet."""

from __future__ import annotations

import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING

from larder.store import Store

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image

_CANVAS_SIDE = 1536
_UPLOADS = 16
_BATCH = 64


def imagenet_like(count: int, classes: int = 20, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Generate objects in the official layout of ILSVRC 2012, with generated JPEGs.

    One image in ten is for validation. Most images have 20 to 110 KB. The same arguments give the
    same objects with the same versions of Pillow and NumPy. ``classes`` are folders of ``train/``;
    the last object is ``val.txt``, with the classes of ``val/``.
    """
    import numpy as np

    random = np.random.default_rng(seed)
    canvas = _canvas(random)
    names = [f"n{1440764 + 2741 * index:08d}" for index in range(classes)]
    validation = max(1, count // 10)
    for index in range(count - validation):
        name = names[index * classes // (count - validation)]
        yield f"train/{name}/{name}_{index + 1}.JPEG", _jpeg(canvas, random)
    lines = []
    for index in range(validation):
        name = f"ILSVRC2012_val_{index + 1:08d}.JPEG"
        lines.append(f"{name} {names[random.integers(classes)]}\n")
        yield f"val/{name}", _jpeg(canvas, random)
    yield "val.txt", "".join(lines).encode()


def _canvas(random: np.random.Generator) -> Image.Image:
    """Noise at several resolutions, to cut images from: compresses about as well as photographs."""
    import numpy as np
    from PIL import Image

    side = _CANVAS_SIDE
    total = np.zeros((side, side, 3), dtype=np.float32)
    for coarse, amplitude in ((6, 1.0), (24, 0.7), (96, 0.5), (384, 0.35), (side, 0.2)):
        noise = random.integers(0, 256, (coarse, coarse, 3), dtype=np.uint8)
        enlarged = Image.fromarray(noise).resize((side, side), Image.Resampling.BILINEAR)
        total += amplitude * np.asarray(enlarged, dtype=np.float32)
    total -= total.min()
    return Image.fromarray((total * (255 / total.max())).astype(np.uint8))


def _jpeg(canvas: Image.Image, random: np.random.Generator) -> bytes:
    width = int(min(900, max(200, random.lognormal(6.12, 0.26))))
    height = int(width * (0.75 if random.random() < 0.75 else 1.25))
    left = int(random.integers(_CANVAS_SIDE - width))
    top = int(random.integers(_CANVAS_SIDE - height))
    target = io.BytesIO()
    image = canvas.crop((left, top, left + width, top + height))
    image.save(target, "JPEG", quality=int(random.integers(80, 93)))
    return target.getvalue()


def write_imagenet(store: Store, count: int, classes: int = 20, seed: int = 0) -> tuple[int, int]:
    """Write the objects of `imagenet_like`, several at once; returns their number and bytes."""
    objects = imagenet_like(count, classes, seed)
    written = size_bytes = 0
    with ThreadPoolExecutor(_UPLOADS) as pool:
        while batch := list(islice(objects, _BATCH)):
            for info in pool.map(lambda each: store.put(*each), batch):
                written += 1
                size_bytes += info.size_bytes
    return written, size_bytes
