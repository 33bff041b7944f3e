"""Objects that a killed run wrote to try its permissions are deleted a day later."""

from dataclasses import replace

import pytest

from larder.store import permissions
from larder.store.base import UNKNOWN_US
from larder.store.permissions import probe_storage
from tests.support import memory
from tests.support.stores import keys_of

HOUR_US = 3_600 * 10**6


@pytest.mark.parametrize(("hours", "left"), [(23, ["work/probe-old"]), (25, [])])
def test_a_probe_of_a_killed_run_goes_a_day_later(hours, left, monkeypatch):
    monkeypatch.setattr(permissions, "is_remote", lambda _: True)
    store = memory.MemoryStore(name := f"probes-{hours}")
    store.put("work/probe-old", b"x")
    store.put("work/others", b"x")
    for key, each in memory._BUCKETS[name].objects.items():
        past = replace(each, modified_us=each.modified_us - hours * HOUR_US)
        memory._BUCKETS[name].objects[key] = past
    probe_storage(store, "work/probe-")
    assert keys_of(store) == sorted(["work/others", *left])


def test_no_probe_is_old_for_one_of_an_unknown_time(monkeypatch):
    monkeypatch.setattr(permissions, "is_remote", lambda _: True)
    store = memory.MemoryStore("probes-undated")
    store.put("work/probe-young", b"x")
    listing = store.list

    def undated(prefix=""):
        for page in listing(prefix):
            own = [each for each in page if each.key != "work/probe-young"]
            others = [each for each in page if each not in own]
            yield [*(each._replace(modified_us=UNKNOWN_US) for each in own), *others]

    monkeypatch.setattr(store, "list", undated)
    probe_storage(store, "work/probe-")
    assert keys_of(memory.MemoryStore("probes-undated")) == ["work/probe-young"]
