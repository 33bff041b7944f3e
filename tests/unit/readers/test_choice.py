"""Which samples of a split a loader has, by its index."""

import json

import numpy as np
import pytest

from larder import Choice
from larder.readers.choice import choice_of
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of

CLASSES = ("cat", "dog", "emu")
SHARDS = (20, 30, 10, 40)
WORDS = (7, 8)


def choose(where=None, limit=None, weights=None, samples=None):
    given = Choice(where, limit, weights)
    return choice_of(samples or NumberedSamples(SHARDS), CLASSES, WORDS, given)


def chosen(where=None, limit=None):
    return choose(where, limit).draws(WORDS).tolist()


def test_samples_are_chosen_by_class_key_function_and_number():
    assert chosen({"label": "dog"}) == list(range(1, 100, 3))
    assert chosen({"label": ["dog", 2]}) == [n for n in range(100) if n % 3]
    assert chosen({"key": "00001?"}) == list(range(10, 20))
    assert chosen({"key": ["*1", "*2"], "label": "cat"}) == [
        n for n in range(0, 100, 3) if n % 10 in (1, 2)
    ]
    assert chosen(lambda rows: (rows.labels == 1) & (rows.bytes == 10)) == list(range(1, 100, 3))
    assert chosen(lambda rows: [key.endswith("7") for key in rows.keys]) == list(range(7, 100, 10))
    assert chosen([-1, 4, 4, 2]) == [2, 4, 99]
    assert chosen(np.arange(100) % 7 == 3) == list(range(3, 100, 7))


def test_a_smaller_limit_is_part_of_a_larger_one():
    last = set()
    for limit in (1, 0.05, 20, np.int32(30), np.float32(0.5), 1.0):
        taken = set(chosen(limit=limit))
        assert last < taken
        last = taken
    assert last == set(chosen(limit=101)) == set(range(100))
    odd = {"label": "dog"}
    assert set(chosen(odd, 0.1)) < set(chosen(odd, 11)) < set(chosen(odd))


def test_classes_are_balanced_exactly():
    choice = choose([*range(1, 100, 3), 0, 2, 5], weights="balanced")
    for epoch in range(3):
        draws = choice.draws((epoch << 50, epoch << 60))
        assert np.bincount(draws % 100 % 3).tolist() == [12, 12, 12]


WRONG = [
    *[("where", {"where": {"label": value}}) for value in ("cow", 3, -1, True, 1.0)],
    *[("where", {"where": value}) for value in ({}, {"name": "x"}, {"key": "none"})],
    *[("where", {"where": {"key": value}}) for value in ([], (), 3, [3], None)],
    *[("where", {"where": lambda rows, value=value: value}) for value in (1, [True], "x")],
    ("where", {"where": lambda rows: np.zeros(len(rows.numbers), np.bool_)}),
    *[("where", {"where": value}) for value in ([], [100], [1.5], "dog", [True, False])],
    *[("limit", {"limit": value}) for value in (0, -1, True, "1", 0.0, 1.5, float("nan"))],
    *[("weights", {"weights": value}) for value in ("equal", [1], ["a"] * 100, [0] * 100, 7)],
    *[("weights", {"weights": [*range(99), value]}) for value in (-1, np.inf, np.nan)],
]


@pytest.mark.parametrize(("where", "options"), WRONG)
def test_what_cannot_be_chosen_is_refused(where, options):
    with larder_error("config.invalid_value", where):
        choose(**options)


def test_a_class_can_only_be_balanced_where_there_are_classes():
    with larder_error("config.invalid_value", "weights"):
        choose(weights="balanced", samples=NumberedSamples(SHARDS, labelled=False))


def test_a_state_is_of_what_is_chosen():
    samples = NumberedSamples(SHARDS)

    def loader(**options):
        return loader_of(samples, batch_size=4, chosen=choose(**options))

    one = loader(where={"label": "dog"}, limit=8)
    one.skip(1)
    state = json.loads(json.dumps(one.state_dict()))
    same = loader(where=lambda rows: rows.labels == 1, limit=8)
    same.load_state_dict(state)
    assert [batch["key"] for batch in same] == [batch["key"] for batch in one]
    for other in ({"limit": 8}, {}, {"where": {"label": "dog"}, "limit": 8, "weights": [1] * 100}):
        with larder_error("config.invalid_value", "state"):
            loader(**other).load_state_dict(state)
    with larder_error("config.invalid_value", "state"):
        one.load_state_dict(loader().state_dict())
