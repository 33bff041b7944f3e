"""Cache files that are built at the same time."""

import itertools
import os
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from required import disk_of

from larder.cache.build import build_file
from larder.cache.record import Codec
from larder.cache.schema import Field, RecordSchema
from larder.errors import LarderError

SCHEMA = RecordSchema((Field("n", "int64"), Field("x", "uint8", (None,))))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    with disk_of("8m", tmp_path / "disk") as place:
        yield place


def test_files_that_are_built_concurrently_share_the_free_space(small_disk):
    """Neither ends, and the disk is never full."""
    reserve_bytes = 2_000_000
    least_bytes = [shutil.disk_usage(small_disk).free]
    barrier = threading.Barrier(2)

    def endless() -> Iterator[dict[str, object]]:
        barrier.wait()
        for number in itertools.count():
            least_bytes.append(shutil.disk_usage(small_disk).free)
            yield {"n": number, "x": os.urandom(300)}

    def run(name: str) -> LarderError:
        with pytest.raises(LarderError) as caught:
            build_file(
                Codec(SCHEMA).encode_each(endless()),
                SCHEMA,
                small_disk / name,
                limit_bytes=None,
                reserve_bytes=reserve_bytes,
                transaction_bytes=50_000,
            )
        return caught.value

    with ThreadPoolExecutor(2) as pool:
        errors = list(pool.map(run, ["a.mdb", "b.mdb"]))
    for error in errors:
        assert (error.code, error.exit_status) == ("store.full", 3)
        assert "would leave less than 2.0 MB of the disk" in error.message
    # What the other one wrote since it was asked: a transaction, in LMDB's pages.
    assert min(least_bytes) > reserve_bytes - 500_000
    assert os.listdir(small_disk) == []
