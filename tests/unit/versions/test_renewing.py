"""Leases that are dropped or written while a reader renews them."""

import pytest

from larder.errors import StoreError, SupersededError
from larder.manifest.sealed import seal
from larder.versions import layout
from larder.versions.leases import (
    DAY_US,
    Lease,
    Tombstone,
    config_name,
    drop_lease,
    read_leases,
    renew_configs,
)
from larder.versions.publish import Conditions
from tests.support.stores import (
    FaultyStore,
    Meanwhile,
    MeanwhileStore,
    denied,
    keys_of,
)

VERSION = "a" * 32
NAME = config_name("c", VERSION)
KEY = layout.lease_key(NAME)
LEASE, LONGER = (Lease("the config of cluster c", days, (VERSION,)) for days in (30, 90))


@pytest.fixture
def leased(root):
    root.put(layout.version_key(VERSION), b"{}")
    root.put(KEY, seal(LEASE))
    return root


def renew(root):
    renew_configs(root, VERSION, root.head(KEY).modified_us + 2 * DAY_US)


def lengthen(root):
    root.put(KEY, seal(LONGER))


@pytest.mark.parametrize("call", ["get", "put"])
@pytest.mark.parametrize(
    ("act", "left"), [(lambda root: drop_lease(root, NAME), []), (lengthen, [LONGER])]
)
def test_what_others_do_with_a_lease_meanwhile_holds(leased, call, act, left):
    meanwhile = Meanwhile()
    meanwhile.before(call, KEY, lambda: act(leased))
    renew(MeanwhileStore(leased, meanwhile))
    assert not meanwhile.waiting
    assert [each.lease for each in read_leases(leased)] == left


def test_a_refusal_deletes_no_lease_of_another(leased):
    """A clean deletes the version, and the lease is written anew before that is seen."""
    meanwhile, tombstone = Meanwhile(), Tombstone((f"versions/{VERSION}",), "cleaner")
    leased.put(layout.tombstone_key("0"), seal(tombstone))
    meanwhile.before("delete", KEY, lambda: lengthen(leased))
    with pytest.raises(SupersededError):
        renew(MeanwhileStore(leased, meanwhile))
    assert [each.lease for each in read_leases(leased)] == [LONGER]
    leased.put(KEY, seal(LEASE))
    with pytest.raises(SupersededError):
        renew(leased)
    assert KEY not in keys_of(leased)


def test_a_failure_leaves_the_lease(leased):
    store = FaultyStore(leased)
    store.add("list", denied(), key=layout.TOMBSTONES_PREFIX)
    with pytest.raises(StoreError):
        renew(store)
    assert [each.lease for each in read_leases(leased)] == [LEASE]


@pytest.mark.parametrize("if_match", [True, False])
def test_a_store_without_the_condition_is_not_asked_for_it(leased, if_match, monkeypatch):
    leased.put(layout.CONDITIONS_KEY, seal(Conditions(if_absent=True, if_match=if_match)))
    asked, put = [], leased.put

    def noted(key, data, **options):
        asked.append(options.get("if_match"))
        return put(key, data, **options)

    monkeypatch.setattr(leased, "put", noted)
    renew(leased)
    assert [bool(etag) for etag in asked] == [if_match]
    assert [each.lease for each in read_leases(leased)] == [LEASE]
