"""Print a digest of each image of a version, as PyTorch's workers decode it."""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any

import numpy as np
from PIL import ImageFile

import larder


def main(given: dict[str, Any]) -> dict[str, Any]:
    """Also with a setting of Pillow that Larder must not follow, by ``given["workers"]``."""
    ImageFile.LOAD_TRUNCATED_IMAGES = True
    found: dict[str, Any] = {}
    for workers in given["workers"]:
        reading = larder.Reading(on_error="skip")
        dataset = larder.open(given["url"]).torch(
            "train", batch_size=8, decode=True, size=given["size"], reading=reading
        )
        found[str(workers)] = {
            key: hashlib.sha256(np.asarray(image).tobytes()).hexdigest()
            for batch in dataset.loader(workers)
            for key, image in zip(batch["key"], batch["image"], strict=True)
        }
    return found


if __name__ == "__main__":
    print(json.dumps(main(json.load(sys.stdin))))
