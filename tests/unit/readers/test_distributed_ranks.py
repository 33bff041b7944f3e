"""The rank in torch.distributed, beside the ranks that launchers and arguments give."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import larder
from larder.readers import launcher
from larder.readers.launcher import rank_of
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of


@pytest.fixture
def distributed(monkeypatch, tmp_path):
    """Initialises torch.distributed, in place of PyTorch's."""
    for variable in (*sum(launcher.LAUNCHERS, ()), "SM_HOSTS", "SM_CURRENT_HOST"):
        if variable:
            monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path))

    def initialise(rank, world, variables="", is_initialized=True):
        for variable in variables.split():
            monkeypatch.setenv(*variable.split("=", 1))
        module = SimpleNamespace(
            is_available=lambda: True,
            is_initialized=lambda: is_initialized,
            get_rank=lambda: rank,
            get_world_size=lambda: world,
        )
        monkeypatch.setitem(sys.modules, "torch.distributed", module)

    return initialise


@pytest.mark.parametrize(
    "variables",
    [
        "",
        "RANK=3 WORLD_SIZE=4",
        "WORLD_SIZE=4",
        "SLURM_PROCID=1 SLURM_NTASKS=2",
        'SM_HOSTS=["algo-1"] SM_CURRENT_HOST=algo-1',
    ],
)
def test_torch_says_the_rank(distributed, variables):
    distributed(3, 4, variables)
    assert rank_of(None, None) == (3, 4, "torch.distributed")


@pytest.mark.parametrize("variables", ["", "RANK=1 WORLD_SIZE=2"])
def test_torch_says_nothing_before_it_is_initialised(distributed, variables):
    distributed(3, 4, variables, is_initialized=False)
    assert rank_of(None, None)[:2] == ((1, 2) if variables else (0, 1))


@pytest.mark.parametrize(
    "variables",
    ["RANK=2 WORLD_SIZE=4", "RANK=3 WORLD_SIZE=8", "WORLD_SIZE=3", "PMI_RANK=0 PMI_SIZE=3"],
)
def test_a_launcher_that_contradicts_torch_is_refused(distributed, variables):
    distributed(3, 4, variables)
    with larder_error("config.invalid_value", "rank"):
        rank_of(None, None)
    assert rank_of(3, 4)[:2] == (3, 4), "arguments win over launchers"


@pytest.mark.parametrize(
    ("rank", "world", "is_right"),
    [(3, 4, True), (0, 1, True), (0, 2, True), (2, 4, False), (0, 3, False), (3, 8, False)],
)
def test_a_given_rank_agrees_with_torch(distributed, rank, world, is_right):
    distributed(3, 4)
    if is_right:
        assert rank_of(rank, world)[:2] == (rank, world)
    else:
        with larder_error("config.invalid_value", "rank"):
            rank_of(rank, world)


def test_a_loader_that_is_older_than_the_ranks_is_refused(distributed):
    samples = NumberedSamples([4, 4])
    loaders = [loader_of(samples, batch_size=4) for _ in range(2)]
    for loader in loaders:
        loader.is_ranked = False
    mix = larder.mix([(loaders[0], 1), (loaders[1], 1)])
    given = loader_of(samples, batch_size=4)
    distributed(0, 1)
    assert len(list(loaders[0])) == 2
    distributed(1, 2)
    for loader in (*loaders, mix):
        with larder_error("config.invalid_value", loader._schedule.split):
            next(iter(loader))
    assert np.concatenate([batch["label"] for batch in given]).shape == (8,)
