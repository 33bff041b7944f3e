"""A repair that is stopped at any write has lost nothing, and the next one continues."""

from collections.abc import Mapping

import pytest
from pipeline_lab import Lab
from required import nightly
from verify_lab import everything, forget_replaced, grown_lab, published, verified

from larder.store import open_store
from larder.store.base import Store
from tests.support.memory import forget
from tests.support.runs import between
from tests.support.stores import Stop, Stopped, StoppingStore

pytestmark = pytest.mark.push

ROOT = "memory://verify-local/x/larder/d"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A version in memory, where nothing can be renamed; the mirror has what the source lost."""
    forget("verify-local")
    storage = "s3://memory-verify-local/x"
    return grown_lab(tmp_path_factory.mktemp("stops"), storage=storage, mirror=True)


def spoil(root: Store, files: Mapping[str, bytes]) -> dict[str, bytes | None]:
    """Damage of several kinds; returns what is there afterwards of each damaged file."""
    one, other, third, fourth, *_ = [key for key in files if key.endswith(".tar")]
    # Not the cache of all shards: only it has what was removed from the source.
    cache = next(key for key in files if "/validation-" in key and key.endswith(".mdb"))
    after: dict[str, bytes | None] = {
        one: files[other],
        other: files[one],
        third: files[third][:700] + bytes([files[third][700] ^ 1]) + files[third][701:],
        fourth: None,
        cache: files[cache][:-1],
        next(key for key in files if "/index/sources-" in key): b"gone",
        next(key for key in files if key.endswith(".idx")): None,
    }
    for key, data in after.items():
        if data is None:
            root.delete(key)
        else:
            root.put(key, data)
    return after


def test_a_repair_that_is_stopped_at_any_write_continues(lab):
    root = open_store(ROOT)
    with between():
        version = verified(lab)["version"]
    every = published(root)
    segments = {key.split("/")[1] for key in every if key.startswith("segments/")}
    files = {key: data for key, data in every.items() if key.split("/")[1] == sorted(segments)[0]}
    assert len([key for key in files if key.endswith(".tar")]) > 3 or len(segments) > 1
    files = files if len([key for key in files if key.endswith(".tar")]) > 3 else every
    step = 1 if nightly() else 7
    stops = 0
    while True:
        after = spoil(root, files)
        contents = set(everything(root).values())
        stop = Stop(after=stops)
        stopping = between(lambda store, stop=stop: StoppingStore(store, stop))
        with stopping:
            try:
                document = verified(lab, repair=True)
            except Stopped:
                document = None
        there = everything(root)
        for key, data in every.items():
            assert there.get(key) in (data, after.get(key, data)), f"{key} after {stops}"
        assert contents & set(every.values()) <= set(there.values()), f"lost after {stops} writes"
        with between():
            continued = verified(lab, repair=True)
        rows = [row for row in continued["findings"] if row["repair"]]
        refused = [row for row in rows if not row["repair"]["done"]]
        assert not refused, refused
        assert continued["status"] in ("intact", "repaired"), continued["findings"]
        assert published(root) == every
        forget_replaced(root)
        if document is not None:
            assert document["status"] == "repaired"
            assert document["version"] == version
            break
        stops += step
    assert stops > 8
