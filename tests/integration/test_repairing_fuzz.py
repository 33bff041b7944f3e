"""Whatever is damaged, and wherever a repair is killed: nothing is lost, and nothing is hidden."""

from __future__ import annotations

import os

import pytest
from repair_lab import BASES, Base, trial

TRIALS = 340 if os.environ.get("LARDER_REQUIRE") == "all" else 20
"""Of each base: a thousand in all, where everything is required."""


@pytest.mark.parametrize("name", BASES)
def test_random_damage(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    base = Base.made(name, tmp_path_factory.mktemp(name))
    problems = [problem for seed in range(TRIALS) for problem in trial(base, seed)]
    assert not problems, "\n".join(problems)
