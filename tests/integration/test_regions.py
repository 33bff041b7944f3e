"""Regions that the configuration does not say: for prices and automatic mirrors."""

from collections.abc import Callable

import pytest
from copy_lab import CopyLab
from pipeline_lab import opened, write
from test_plan_priced import EAST, WEST, lab_of

from larder.store.base import Store
from larder.store.delegate import DelegatingStore
from tests.support.runs import between


class Somewhere(DelegatingStore):
    """A bucket whose provider says where it is."""

    def __init__(self, inner: Store, found: str, asked: list[str]) -> None:
        super().__init__(inner)
        self.found, self.asked = found, asked

    def region(self) -> str:
        self.asked.append(self.url)
        return self.found


def somewhere(source: str, storage: str, asked: list[str]) -> Callable[[Store], Store]:
    def wrap(store: Store) -> Store:
        return Somewhere(store, source if "source" in store.url else storage, asked)

    return wrap


def test_a_region_that_is_found_prices_and_mirrors_like_a_configured_one(tmp_path):
    asked: list[str] = []
    with between():
        configured = lab_of(tmp_path, "told", EAST, WEST).plan()
    with between(somewhere("us-east-1", "us-west-2", asked)):
        lab = lab_of(tmp_path, "found", {}, {})
        plan = lab.plan()
        assert len(asked) == 2
        assert plan["mirror"] == configured["mirror"]
        assert plan["mirror"]["wanted"]
        assert plan["cost"] == configured["cost"]
        assert lab.prepare()["copied"]["count"] == 15
        asked.clear()
        assert lab.prepare()["status"] == "reused"
        assert asked == [], "nobody needs to know"


@pytest.mark.parametrize("found", ["", "us-east-1"])
def test_a_copy_is_priced_by_regions_that_are_found(tmp_path, found):
    asked: list[str] = []
    name = f"copied-{found}"
    write(f"memory://{name}-source", {"a": b"1" * 1_000_000})
    lab = CopyLab(f"s3://memory-{name}-source", f"s3://memory-{name}-copies", {})
    with between(somewhere(found, "us-west-2", asked)):
        cost = lab.copy(plan_only=True)["cost"]
        assert (cost["egress_usd"] is not None) == bool(found)
        assert len(asked) == 2
        lab.copy()
        asked.clear()
        assert lab.copy()["status"] == "current"
        assert asked == []
    with opened(f"memory://{name}-copies") as store:
        assert store.get("a") == b"1" * 1_000_000
