"""Headers of arrays, read by many threads."""

import gc
import io
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from larder.samples.npy import read_header

DTYPE = np.dtype([("a", "<i8"), ("b", "<u4", (3,))])


@pytest.fixture
def collecting() -> Iterator[None]:
    """Threads take turns, and garbage is collected, as often as possible."""
    threshold, seconds = gc.get_threshold(), sys.getswitchinterval()
    gc.set_threshold(10)
    sys.setswitchinterval(1e-5)
    yield
    gc.set_threshold(*threshold)
    sys.setswitchinterval(seconds)


class Garbage:
    """In a circle with itself, and with Python code that runs when it is collected."""

    def __init__(self) -> None:
        self.circle = self

    def __del__(self) -> None:
        for _ in range(50):
            pass


@pytest.mark.usefixtures("collecting")
def test_threads_read_headers_at_once():
    file = io.BytesIO()
    np.save(file, np.zeros(3, DTYPE))
    data = file.getvalue()

    def read(_: int) -> bool:
        shapes = set()
        for _ in range(200):
            Garbage()
            shapes.add(read_header(io.BytesIO(data)))
        return shapes == {((3,), False, DTYPE)}

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))
