"""Which elements each rank has, in which order: YogaDL's semantics without its bugs."""

import sys
from itertools import chain
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import larder
from tests.support.errors import larder_error


def numbers(loader: Any) -> list[int]:
    return [int(each) for each in loader]


def train(count: int = 10, shuffle: bool = False, **options: Any) -> Any:
    return larder.cache_train_dataset("range", "v1", shuffle, **options)(lambda: range(count))()


def validation(count: int = 10, shuffle: bool = False, **options: Any) -> Any:
    decorate = larder.cache_validation_dataset("range", "v1", shuffle, **options)
    return decorate(lambda: range(count))()


@pytest.mark.parametrize(("count", "world"), [(10, 1), (10, 3), (11, 3), (3, 3), (10, 4)])
def test_ranks_share_all_for_validation_and_evenly_for_training(count, world):
    ranks = [numbers(validation(count, rank=rank, world=world)) for rank in range(world)]
    assert ranks == [list(range(rank, count, world)) for rank in range(world)]
    ranks = [numbers(train(count, rank=rank, world=world)) for rank in range(world)]
    used = count - count % world
    assert ranks == [list(range(rank, used, world)) for rank in range(world)]


def test_a_rank_without_an_element_has_an_empty_epoch():
    loader = validation(2, rank=2, world=3, batch_size_per_rank=2)
    assert (len(loader), list(loader), list(loader)) == (0, [], [])
    with larder_error("config.invalid_value", "range/v1_train"):
        train(2, rank=0, world=3)


def test_training_is_shuffled_anew_in_each_epoch_and_validation_once():
    loader = train(50, True)
    epochs = [numbers(loader) for _ in range(3)]
    assert all(sorted(epoch) == list(range(50)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in (list(range(50)), *epochs)}) == 4
    assert [numbers(train(50, True)) for _ in range(2)] == [epochs[0]] * 2
    assert numbers(train(50, True, seed=1)) != epochs[0]
    for same in (
        validation(50, True),
        larder.cache_train_dataset("range", "v1", True, True)(lambda: range(50))(),
        larder.cache_train_dataset("range", "v1", True, skip_shuffle_at_epoch_end=True)(range)(50),
    ):
        first = numbers(same)
        assert first != list(range(50))
        assert numbers(same) == first


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("offset", [0, 1, 4, 5, 13])
def test_an_offset_is_of_the_rank_and_of_the_first_pass_alone(shuffle, offset):
    whole = train(10, shuffle, rank=1, world=2)
    stream = list(chain(*(numbers(whole) for _ in range(4))))
    part = train(10, shuffle, rank=1, world=2, offset=offset)
    rest = list(chain(*(numbers(part) for _ in range(4 - offset // 5))))
    assert rest == stream[offset:]


def test_another_world_goes_on_with_the_same_batches():
    def batches(world: int, **options: Any) -> list[set[int]]:
        loaders = [
            train(50, True, rank=rank, world=world, batch_size=12, **options)
            for rank in range(world)
        ]
        return [{*chain(*map(np.ndarray.tolist, each))} for each in zip(*loaders, strict=True)]

    of_two = batches(2)
    assert len(of_two[4]) == 2  # which neither three nor four ranks can share
    assert batches(3, offset=8) == of_two[2:4]
    loader = train(50, True, rank=0, world=2, batch_size=12)
    iteration = iter(loader)
    next(iteration)
    assert batches(4, state=loader.state_dict()) == of_two[1:4]


def test_batches_are_of_the_size_that_is_given():
    loader = train(10, batch_size_per_rank=4)
    assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    with larder_error("config.invalid_value", "offset"):
        train(10, batch_size_per_rank=4, offset=3)
    with larder_error("config.invalid_value", "batch_size"):
        train(10, batch_size=3, rank=0, world=2)


@pytest.mark.parametrize(
    "options",
    [
        {"rank": 1},
        {"rank": 3, "world": 3},
        {"seed": -1},
        {"offset": -1},
        {"offset": 1, "state": {}},
        {"batch_size": 3, "world": 2, "rank": 0},
        {"batch_size": 2, "batch_size_per_rank": 1},
        {"max_records": 0},
        {"file_bytes": 0},
        {"max_bytes": "many"},
    ],
    ids=str,
)
def test_options_are_refused_before_anything_is_built(storage, options):
    with larder_error("config.invalid_value"):
        train(**options)
    assert not storage.exists()


def test_two_readers_of_one_cache_in_one_process():
    one, other = train(), train()
    assert [*zip(numbers(one), numbers(other), strict=True)] == [(n, n) for n in range(10)]


class TestInATrial:
    @pytest.fixture(autouse=True)
    def _trial(self, monkeypatch, request):
        monkeypatch.setenv("DET_TRIAL_ID", request.node.name)
        monkeypatch.setenv("DET_TRIAL_SEED", "5")
        monkeypatch.setenv("DET_STEPS_COMPLETED", "2")
        monkeypatch.setenv("DET_HPARAMS", '{"global_batch_size": 4}')
        for name, value in (("RANK", "1"), ("WORLD_SIZE", "2")):
            monkeypatch.setenv(name, value)

    def test_it_goes_on_where_the_platform_says(self):
        wanted = train(20, True, rank=1, world=2, seed=5, batch_size=4, offset=4)
        assert [batch.tolist() for batch in train(20, True)] == [b.tolist() for b in wanted]
        assert numbers(chain(*validation(20))) == list(range(1, 20, 2))

    @pytest.mark.parametrize(
        ("variables", "first"),
        [
            ({"DET_STEPS_COMPLETED": "", "DET_LATEST_BATCH": "1"}, 5),  # until 0.17
            ({"DET_STEPS_COMPLETED": "1", "DET_LATEST_BATCH": "2"}, 5),
            ({"DET_STEPS_COMPLETED": "0", "DET_LATEST_BATCH": "0"}, 1),
            ({"DET_STEPS_COMPLETED": ""}, 1),
        ],
        ids=str,
    )
    def test_its_release_has_a_name_for_the_steps(self, variables, first, monkeypatch):
        for name, value in variables.items():
            monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
        assert next(iter(train(20)))[0] == first

    def test_steps_that_are_no_number_are_named(self, monkeypatch):
        monkeypatch.delenv("DET_STEPS_COMPLETED")
        monkeypatch.setenv("DET_LATEST_BATCH", "none")
        with larder_error("config.invalid_value", "DET_LATEST_BATCH"):
            train(20)

    def test_one_dataset_is_trained_with(self):
        train(20)
        train(20)
        other = larder.cache_train_dataset("other", "v1")
        with larder_error("config.invalid_value", "other/v1_train"):
            other(lambda: range(20))()
        larder.cache_train_dataset("other", "v1", offset=0)(lambda: range(20))()

    def test_batches_of_an_unknown_size_are_refused(self, monkeypatch):
        monkeypatch.delenv("DET_HPARAMS")
        with larder_error("config.invalid_value", "batch_size"):
            train(20)
        assert len(train(20, batch_size_per_rank=2)) == 5


def test_a_loader_that_is_older_than_the_ranks_is_refused(monkeypatch):
    earlier, given = train(10), train(10, rank=0, world=1)
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_rank=lambda: 1,
        get_world_size=lambda: 2,
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    with larder_error("config.invalid_value", "v1_train"):
        numbers(earlier)
    assert numbers(given) == list(range(10))
