"""Every flipped bit in a published file is found, and repaired to the same bytes."""

import random
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from larder.jobs.runner import InlineRunner
from larder.pipeline.prepare import prepare
from larder.progress import StageTimes
from larder.store import open_store
from larder.verify.findings import DamagedError
from larder.verify.run import VerifySettings, verify
from tests.support.memory import forget
from tests.support.runs import between, run_settings

ROOT = "memory://flips/x/larder/d"


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A small version of text samples with a cache, in memory."""
    forget("flips")
    forget("flips-source")
    source = open_store("memory://flips-source")
    for number in range(12):
        data = random.Random(number).randbytes(200 + 97 * number)
        source.put(f"{'ab'[number % 2]}/{number:02}.bin", data)
    given_settings = run_settings(
        "memory://flips-source",
        "s3://memory-flips/x",
        tmp_path_factory.mktemp("flips"),
        labels={"from": "folder"},
        shards={"bytes": 8_000},
        cache={"records": "encoded"},
    )
    with between():
        prepare(given_settings)
        yield given_settings


def _verified(asked: Any, *, repair: bool = False) -> Any:
    runner = InlineRunner(1, StageTimes(), threading.Event())
    try:
        return verify(VerifySettings(asked, repair=repair), runner)
    except DamagedError as error:
        return error.document


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_flipped_bit_is_found_and_repaired(asked, data):
    root = open_store(ROOT)
    beside = ("work/", "leases/", "/runs/")
    keys = [info.key for page in root.list() for info in page]
    keys = [key for key in keys if not any(each in key for each in beside)]
    key = data.draw(st.sampled_from(keys), "file")
    before = bytes(root.get(key))
    place = data.draw(st.integers(0, len(before) - 1), "byte")
    bit = data.draw(st.integers(0, 7), "bit")
    flipped = bytearray(before)
    flipped[place] ^= 1 << bit
    root.put(key, bytes(flipped))
    try:
        found = _verified(asked)
        assert found["status"] == "damaged"
        assert key in {row["path"] for row in found["findings"]}
        repaired = _verified(asked, repair=True)
        if key.startswith("tags/") or key.endswith(("version.json", "segment.json", "cache.json")):
            assert repaired["status"] == "damaged"
        else:
            assert repaired["status"] == "repaired", repaired["findings"]
            assert bytes(root.get(key)) == before
    finally:
        root.put(key, before)
