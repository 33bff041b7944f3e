"""Regions that the configuration does not say: for prices and automatic mirrors."""

from collections.abc import Callable

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
