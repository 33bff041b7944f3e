"""Whatever is damaged, and wherever a repair is killed: nothing is lost, and nothing is hidden."""

from __future__ import annotations

import pytest
from repair_lab import BASES, Base, trial
from required import at_night

pytestmark = pytest.mark.push

TRIALS = 5
"""Trials of each dataset in one test; 240 in all, at night."""


@pytest.fixture(scope="module")
def bases() -> dict[str, Base]:
    return {}


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("first", at_night(*range(0, 16 * TRIALS, TRIALS), but=[0]))
def test_random_damage(
    name: str, first: int, bases: dict[str, Base], tmp_path_factory: pytest.TempPathFactory
) -> None:
    base = bases.get(name) or Base.made(name, tmp_path_factory.mktemp(name))
    bases[name] = base
    seeds = range(first, first + TRIALS)
    problems = [problem for seed in seeds for problem in trial(base, seed)]
    assert not problems, "\n".join(problems)
