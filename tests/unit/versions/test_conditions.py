"""Which conditional writes a store keeps: tried once, by writing nothing but the answer."""

import pytest

from larder.manifest.sealed import seal
from larder.store import RetryPolicy, RetryStore
from larder.versions import layout
from larder.versions.publish import KEPT, Conditions, probe_conditions, read_conditions
from tests.support.errors import larder_error
from tests.support.stores import (
    FaultyStore,
    LoseAnswer,
    Meanwhile,
    MeanwhileStore,
    Stop,
    Stopped,
    StoppingStore,
    UnconditionalStore,
    denied,
    unavailable,
)

KEY = layout.CONDITIONS_KEY
NEITHER = Conditions(if_absent=False, if_match=False)


@pytest.mark.parametrize("kept", [KEPT, NEITHER])
def test_a_run_killed_while_it_asks_leaves_the_question_open(root, kept):
    store = UnconditionalStore(root, if_absent=kept.if_absent, if_match=kept.if_match)
    for after in range(4):
        with pytest.raises(Stopped):
            probe_conditions(StoppingStore(store, Stop(after)))
        assert read_conditions(store) is None
    assert probe_conditions(store) == kept


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("effect", [LoseAnswer(), unavailable()])
@pytest.mark.parametrize("kept", [KEPT, NEITHER])
def test_a_lost_answer_does_not_change_what_is_found(root, nth, effect, kept):
    faulty = FaultyStore(UnconditionalStore(root, if_absent=kept.if_absent, if_match=kept.if_match))
    faulty.add("put", effect, nth=nth)
    store = RetryStore(faulty, RetryPolicy(sleep=lambda _: None))
    assert probe_conditions(store) == kept


@pytest.mark.parametrize("puts", range(4))
def test_runs_that_ask_at_the_same_time_find_the_same(root, puts):
    """Another run asks after so many puts of this one."""
    meanwhile, found = Meanwhile(), list[Conditions]()
    meanwhile.before("put", KEY, lambda: None, times=puts)
    meanwhile.before("put", KEY, lambda: found.append(probe_conditions(root)))
    found.append(probe_conditions(MeanwhileStore(root, meanwhile)))
    assert found == [KEPT, KEPT]
    assert read_conditions(root) == KEPT


@pytest.mark.parametrize("plain", [{}, {"if_absent": True}, {"if_absent": 1, "if_match": "yes"}])
def test_an_invalid_answer_is_damage(root, plain):
    root.put(KEY, seal(plain))
    for ask in (read_conditions, probe_conditions):
        with larder_error("damage.manifest", f"{root.url}{KEY}"):
            ask(root)


def test_a_store_that_refuses_every_write_is_not_one_without_conditions(root):
    for nth in range(1, 5):
        store = FaultyStore(root)
        store.add("put", denied(), nth=nth)
        with larder_error("store.denied"):
            probe_conditions(store)
        assert read_conditions(root) is None
