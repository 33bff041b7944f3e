"""Loaders of cached functions are plain loaders; what needs an index of samples is refused."""

import numpy as np
import pytest

import larder
from larder.datalayer.element_loader import LayerDivision
from larder.readers.epoch_order import Sequential
from larder.readers.loader import Loader
from tests.support.errors import larder_error


@pytest.mark.parametrize("call", [lambda one: one.keys(0, 0), lambda one: larder.mix([(one, 1)])])
def test_what_needs_keys_is_refused(call):
    loader = larder.cache_train_dataset("d", "v1", batch_size=2)(lambda: range(4))()
    assert type(loader) is Loader
    with larder_error("config.invalid_value") as caught:
        call(loader)
    assert "cached function" in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"batch_size": 2}], ids=str)
def test_workers_read_their_parts_of_an_epoch(options):
    loader = larder.cache_train_dataset("d", "v1", True, **options)(lambda: range(10))()
    numbers = range(len(loader))
    parts = [[*loader.read(numbers[first::3])] for first in range(3)]
    in_order = [parts[number % 3][number // 3] for number in numbers]
    assert np.array_equal(in_order, [*loader])


@pytest.mark.parametrize("even", ["drop", "pad"])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_a_rank_has_as_many_batches_as_shares(world, even):
    for samples in range(world, 13):
        division = LayerDivision(samples, 2 * world, world, even)
        shares = [
            division.shares(Sequential(), 0, division.batches_of(rank), rank)
            for rank in range(world)
        ]
        elements = sorted(number for each in shares for part in each for number in part.tolist())
        assert elements == list(range(samples - division.dropped))
        assert all(len(part) for each in shares for part in each)
        assert division.batches == max(map(len, shares))
