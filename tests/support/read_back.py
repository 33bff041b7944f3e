"""Read a version of digits as training does, with nothing installed but what reading needs.

Run as a script by each Python, without the checkout: ``read_back.py DIRECTORY BUCKET FOLDER``.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import larder
from larder.store.buckets import time_of

directory, bucket, folder = sys.argv[1:]


def digits(url: str) -> list[str]:
    """The keys of an epoch, in order."""
    loader = larder.open(url).loader("train", batch_size=64, shuffle=True, seed=7, workers=1)
    batches = list(loader)
    assert np.shape(batches[0]["image"]) == (64, 8, 8, 1)
    return [key for batch in batches for key in batch["key"]]


@larder.cache_validation_dataset("squares", "1")
def squares() -> Iterator[np.int64]:
    for number in range(10):
        yield np.int64(number * number)


def main() -> None:
    keys = digits(directory)
    assert len(set(keys)) > 1400
    assert digits(bucket) == keys
    cached = larder.open(directory).cache("train", verify=True)
    images: Any = cached.batch([3, 1, 2])["image"]
    assert images.shape == (3, 8, 8, 1)
    warm = [str(Path(sys.executable).with_name("larder")), "warm", bucket, "--to", folder]
    warmed = subprocess.run(warm, check=True, capture_output=True, text=True)
    assert digits(warmed.stdout.strip()) == keys
    assert [int(each) for each in squares()] == [n * n for n in range(10)]
    assert time_of("2026-11-21T07:41:29+0100") == time_of("2026-11-21T06:41:29Z")
    if sys.version_info < (3, 11):
        refused = subprocess.run(
            [warm[0], "prepare", "--dataset", "digits"], capture_output=True, text=True
        )
        assert refused.returncode == 2
        assert refused.stderr.count("\n") == 1
        assert "needs 3.11 or newer" in refused.stderr
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}: {len(keys)} samples")


if __name__ == "__main__":  # workers import this module again
    main()
