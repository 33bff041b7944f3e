"""Leases and tombstones: what they may say, and who sees whom."""

import pytest

from larder.errors import SupersededError
from larder.manifest.sealed import seal
from larder.store.base import UNKNOWN_US
from larder.versions import layout
from larder.versions.leases import (
    DAY_US,
    Claim,
    Lease,
    Tombstone,
    claim_version,
    claimed,
    drop_lease,
    read_leases,
    read_tombstones,
    running_seconds,
)
from tests.support.errors import larder_error
from tests.support.stores import FaultyStore, RecordingStore, keys_of, unavailable

A, B = "a" * 32, "b" * 32
UNITS = [
    f"versions/{A}",
    f"segments/{A}",
    f"segments/{A}/caches/{B}",
    f"segments/{A}/work/caches/{B}",
    f"work/replaced/segments/{A}/shards/train/x.tar-0123",
    "work/replaced/tags/latest.json-0123",
]
NO_UNITS = [
    "tags/latest.json",
    "versions/x",
    f"versions/{A}/version.json",
    "mirror/a",
    "work/conditions.json",
    f"segments/{A}/shards",
    "work/replaced/../../tags/latest.json",
]


def test_a_tombstone_names_units_only(root):
    root.put(layout.tombstone_key("0"), seal(Tombstone(tuple(UNITS))))
    ((_, tombstone, _),) = read_tombstones(root)
    assert list(tombstone.prefixes) == UNITS
    for prefix in NO_UNITS:
        root.put(layout.tombstone_key("0"), seal(Tombstone((prefix,))))
        with larder_error("damage.manifest"):
            list(read_tombstones(root))


@pytest.mark.parametrize("days", [0, 4_000, 2**62])
def test_a_lease_that_never_ends_is_damage(root, days):
    root.put(layout.lease_key("x"), seal(Lease("bob", days)))
    with larder_error("damage.manifest"):
        list(read_leases(root))


@pytest.mark.parametrize("prefix", UNITS[:4])
def test_who_claims_what_a_clean_deletes_is_refused_and_leaves_no_lease(root, prefix):
    key = layout.tombstone_key("0")
    claim = Claim.of_run([A], [A])
    root.put(key, seal(Tombstone((prefix,))))
    with claimed(root, claim):
        assert [each.lease.versions for each in read_leases(root)] == [(A,)]
    root.put(key, seal(Tombstone((prefix,), "cleaner")))
    with larder_error("version.cleaned"):
        claim.take(root)
    assert keys_of(root) == [key]
    Claim.of_run([B], [B]).take(root)


@pytest.mark.parametrize(
    ("failing", "calls"), [("put", ["put"]), ("list", ["put", "list", "delete"])]
)
def test_a_claim_that_fails_asks_for_nothing_more_than_it_must(root, failing, calls):
    """A store that cannot be reached costs a long wait for each call."""
    faulty = FaultyStore(root)
    faulty.add(failing, unavailable())
    recording = RecordingStore(faulty)
    with larder_error("store.unavailable"), claimed(recording, Claim.of_run([A])):
        pytest.fail("it has no lease")
    assert [call.method for call in recording.calls] == calls
    assert keys_of(root) == []


def test_what_a_clean_has_deleted_cannot_be_claimed(root):
    with pytest.raises(SupersededError) as caught:
        claim_version(A).take(root)
    assert (caught.value.code, A in str(caught.value)) == ("version.cleaned", True)
    assert keys_of(root) == []


def test_a_lease_is_dropped_by_its_name(root):
    Claim(Lease("bob", 1), name="user-1").take(root)
    drop_lease(root, "user-1")
    for name in ("user-1", "../tags/latest"):
        with larder_error("version.missing"):
            drop_lease(root, name)


def test_the_age_of_the_first_run_in_progress(root):
    """A damaged lease of another kind does not matter."""
    root.put(layout.lease_key("config-x"), b"damaged")
    assert running_seconds(root, 7) is None
    claims = [Claim.of_run([]) for _ in range(2)]
    for claim in claims:
        claim.take(root)
    first_us = root.head(layout.lease_key(claims[0].name)).modified_us
    assert running_seconds(root, first_us + DAY_US) == DAY_US / 1e6
    assert running_seconds(root, first_us - 3_000_000) == 3, "the clock was read before"
    assert running_seconds(root, first_us + 8 * DAY_US) is None


def test_a_run_of_an_unknown_time_has_begun_long_ago(root, monkeypatch):
    """Otherwise, all uploads would be older than the run."""
    Claim.of_run([]).take(root)
    head = root.head
    monkeypatch.setattr(root, "head", lambda key: head(key)._replace(modified_us=UNKNOWN_US))
    for now_us in (0, 1_800_000_000_000_000):
        assert running_seconds(root, now_us) > 1e9
