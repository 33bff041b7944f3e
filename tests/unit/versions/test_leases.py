"""Leases and tombstones: what they may say, and who sees whom."""

import pytest

from larder.errors import SupersededError
from larder.manifest.sealed import seal
from larder.versions import layout
from larder.versions.leases import (
    Claim,
    Lease,
    Tombstone,
    claim_version,
    claimed,
    drop_lease,
    read_leases,
    read_tombstones,
)
from tests.support.errors import larder_error
from tests.support.stores import keys_of

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
