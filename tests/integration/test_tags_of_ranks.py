"""Ranks that open a tag, which may move before all of them have opened it."""

import logging

import pytest
from pipeline_lab import directory_lab

import larder
from larder.readers import address
from larder.readers.launcher import LAUNCHERS


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    fields = {"splits": {"a": "**"}, "validate": "none", "cache": None}
    lab = directory_lab(tmp_path_factory.mktemp("lab"), {"a/1.bin": b"1"}, **fields)
    lab.prepare()
    return f"{lab.storage}/larder/d"


@pytest.mark.parametrize(
    ("variables", "warnings"),
    [
        ("", 0),
        ("RANK=0 WORLD_SIZE=1", 0),
        ("RANK=1 WORLD_SIZE=4", 1),
        ("WORLD_SIZE=4", 1),
        ("OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2", 1),
        ("RANK=0 WORLD_SIZE=1 SLURM_PROCID=1 SLURM_NTASKS=2", 1),
        ("SLURM_PROCID=0 SLURM_NTASKS=4 SLURM_JOB_ID=7", 0),
        ('SM_HOSTS=["a","b"] SM_CURRENT_HOST=b', 1),
    ],
)
def test_a_rank_that_opens_a_tag_is_warned_once(root, variables, warnings, monkeypatch, caplog):
    for variable in (*sum(LAUNCHERS, ()), "SLURM_JOB_ID", "SLURM_STEP_ID", "SM_HOSTS"):
        monkeypatch.delenv(variable or "SM_CURRENT_HOST", raising=False)
    for variable in variables.split():
        monkeypatch.setenv(*variable.split("=", 1))
    address._warn_of_tag.cache_clear()
    with caplog.at_level(logging.WARNING, "larder"):
        version = larder.open(f"{root}@{larder.open(root).version}").version
        larder.open(f"{root}@{version[:8]}")
        larder.open(f"{root}@latest")
    assert [f"open {root}@{version}," in each for each in caplog.messages] == [True] * warnings
