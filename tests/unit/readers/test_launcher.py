"""The rank of a process, as its launcher or torch.distributed says, or as it was given."""

import json
import logging
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import larder
from larder.readers import launcher
from larder.readers.launcher import rank_of
from tests.support.errors import larder_error
from tests.support.numbered import NumberedSamples, loader_of


@pytest.fixture(autouse=True)
def launched(monkeypatch, tmp_path):
    """Sets variables in place of those of this process."""
    for variable in (*sum(launcher.LAUNCHERS, ()), "SLURM_JOB_ID", "SLURM_STEP_ID"):
        monkeypatch.delenv(variable or "SM_HOSTS", raising=False)
    monkeypatch.delenv("SM_CURRENT_HOST", raising=False)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path))

    def by(text):
        for variable in text.split():
            monkeypatch.setenv(*variable.split("=", 1))

    return by


HOSTS = 'SM_HOSTS=["algo-1","algo-2"]'


@pytest.mark.parametrize(
    ("variables", "rank"),
    [
        ("", (0, 1)),
        ("RANK=3 WORLD_SIZE=8", (3, 8)),
        ("OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2", (1, 2)),
        ("PMI_RANK=1 PMI_SIZE=2", (1, 2)),
        ("MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", (1, 2)),
        ("HOROVOD_RANK=1 HOROVOD_SIZE=2", (1, 2)),
        ("SLURM_PROCID=1 SLURM_NTASKS=4", (1, 4)),
        ("SLURM_PROCID=1 SLURM_NTASKS=4 SLURM_JOB_ID=7 SLURM_STEP_ID=0", (1, 4)),
        ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", (0, 1)),
        (f"{HOSTS} SM_CURRENT_HOST=algo-2", (1, 2)),
        ("RANK=5 WORLD_SIZE=8 SLURM_PROCID=1 SLURM_NTASKS=2", (5, 8)),
        (f"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 {HOSTS} SM_CURRENT_HOST=algo-2", (3, 4)),
        ("RANK=1 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2", (1, 2)),
    ],
)
def test_a_launcher_says_the_rank(launched, variables, rank):
    launched(variables)
    assert rank_of(None, None)[:2] == rank
    assert rank_of(4, 5)[:2] == (4, 5), "arguments win"


@pytest.mark.parametrize(
    ("variables", "where"),
    [
        ("RANK=3", "RANK"),
        ("RANK=a WORLD_SIZE=8", "RANK"),
        ("RANK=8 WORLD_SIZE=8", "RANK"),
        ("RANK=0 WORLD_SIZE=2 PMI_RANK=1 PMI_SIZE=2", "rank"),
        ("RANK=0 WORLD_SIZE=2 SLURM_PROCID=0 SLURM_NTASKS=4", "rank"),
        (HOSTS, "SM_HOSTS"),
        ("SM_CURRENT_HOST=algo-2", "SM_HOSTS"),
        ("SM_HOSTS=algo SM_CURRENT_HOST=algo", "SM_HOSTS"),
    ],
)
def test_a_launcher_that_is_unclear_is_refused(launched, variables, where):
    launched(variables)
    with larder_error("config.invalid_value", where):
        rank_of(None, None)
    assert rank_of(0, 1)[:2] == (0, 1)


def test_a_job_of_sagemaker_has_a_file_with_its_instances(tmp_path):
    (tmp_path / "config").mkdir()
    config = {"current_host": "algo-2", "hosts": ["algo-1", "algo-2"]}
    (tmp_path / "config" / "resourceconfig.json").write_text(json.dumps(config))
    assert rank_of(None, None)[:2] == (1, 2)


@pytest.mark.parametrize(("rank", "world", "where"), [(0, None, "rank"), (None, 2, "world")])
def test_half_a_rank_is_refused(rank, world, where):
    with larder_error("config.invalid_value", where):
        rank_of(rank, world)


def test_the_rank_is_logged_once(launched, caplog):
    launched("RANK=1 WORLD_SIZE=4")
    launcher._log.cache_clear()
    with caplog.at_level(logging.INFO, "larder"):
        rank_of(None, None)
        rank_of(None, None)
    assert caplog.messages == ["rank 1 of 4, by RANK and WORLD_SIZE"]


@pytest.fixture
def distributed(launched, monkeypatch):
    """Initialises torch.distributed, in place of PyTorch's."""

    def initialise(rank, world, variables="", is_initialized=True):
        launched(variables)
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


@pytest.mark.parametrize(("rank", "world"), [(3, 4), (0, 1), (0, 2)])
def test_a_given_rank_agrees_with_torch(distributed, rank, world):
    distributed(3, 4)
    assert rank_of(rank, world)[:2] == (rank, world)


@pytest.mark.parametrize(("rank", "world"), [(2, 4), (0, 3), (3, 8)])
def test_a_given_rank_that_contradicts_torch_is_refused(distributed, rank, world):
    distributed(3, 4)
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
