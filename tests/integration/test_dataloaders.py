"""Plain DataLoaders give the loader's batches, and refuse an epoch twice or a wrong state."""

from typing import Any

import pytest
from required import read_with_frameworks

REFUSED = "config.invalid_value DataLoader"


@pytest.fixture(scope="module")
def read() -> Any:
    return read_with_frameworks("with_dataloaders", None)


def test_without_workers_epochs_follow_each_other(read):
    assert read["none"] == read["wanted"]
    assert read["wanted"][0] != read["wanted"][1]


def test_workers_read_an_epoch_once_and_the_next_by_set_epoch(read):
    first, second = read["wanted"]
    for name, by in read["workers"].items():
        assert (by["first"], by["second"]) == (first, second), name
        assert by["refused"] == [REFUSED] * 3, name


def test_persistent_workers_read_one_epoch(read):
    by = read["persistent"]
    assert (by["first"], by["second"]) == (read["wanted"][0], REFUSED)
    assert by["refused"] == [REFUSED] * 3


def test_a_state_without_workers_is_resumed_with_any(read):
    assert read["resumed"] == [read["wanted"][0][2:]] * 3


def test_other_iterations_and_states_are_refused(read):
    assert read["refused"] == [REFUSED] * 6


def test_batches_are_dictionaries_and_tuples(read):
    assert read["kinds"] == ["dict"] * 5 + ["tuple"]
