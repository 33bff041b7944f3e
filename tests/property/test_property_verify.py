"""Every flipped bit in a published file is found, and repaired to the same bytes."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_lab import memory_lab
from verify_lab import DOCUMENTS, published, verified

from tests.support.runs import between


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    objects = {
        f"{'ab'[number % 2]}/{number:02}.bin": random.Random(number).randbytes(200 + 97 * number)
        for number in range(12)
    }
    fields = {"labels": {"from": "folder"}, "cache": {"records": "encoded"}}
    made = memory_lab(
        tmp_path_factory.mktemp("flips"), objects, name="flips", shards={"bytes": 8_000}, **fields
    )
    with between():
        made.prepare()
        yield made


@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_any_flipped_bit_is_found_and_repaired(lab, data):
    with lab.opened_root() as root:
        key = data.draw(st.sampled_from([*published(root)]), "file")
        before = bytes(root.get(key))
        place = data.draw(st.integers(0, len(before) - 1), "byte")
        bit = data.draw(st.integers(0, 7), "bit")
        root.put(key, before[:place] + bytes([before[place] ^ 1 << bit]) + before[place + 1 :])
        try:
            found = verified(lab)
            assert found["status"] == "damaged"
            assert key in {row["path"] for row in found["findings"]}
            repaired = verified(lab, repair=True)
            if key.startswith("tags/") or key.endswith(DOCUMENTS):
                assert repaired["status"] == "damaged"
            else:
                assert repaired["status"] == "repaired", repaired["findings"]
                assert bytes(root.get(key)) == before
        finally:
            root.put(key, before)
