"""Which of the processes that train together this one is, as whoever started it says."""

from __future__ import annotations

import json
import logging
import os
from functools import cache
from typing import Any, Final, NamedTuple

from larder.readers.sagemaker import resource_config
from larder.readers.schedule import invalid, whole


class Launcher(NamedTuple):
    """The variables in which a launcher numbers the processes, and those of one machine."""

    rank: str
    world: str
    local: str


LAUNCHERS: Final = (
    Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK"),
    Launcher("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),
    Launcher("SLURM_PROCID", "SLURM_NTASKS", ""),
)
"""torchrun, PyTorchJobs of Kubeflow, and Determined; Open MPI; MPICH; srun of Slurm.

Each may have been started by one that follows it, such as torchrun by srun.
"""

_ARGUMENTS: Final = "give rank= and world="


class Rank(NamedTuple):
    """One of ``world`` processes, numbered from 0, and who says so."""

    rank: int
    world: int
    said_by: str = ""

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world}"


def rank_of(rank: Any, world: Any) -> Rank:
    """The rank that was given, or that of the launcher, or the only one.

    Raises:
        ConfigError: ``config.invalid_value``: only one of both is given or set, or no number; or
            two launchers contradict each other.
    """
    if rank is None and world is None:
        return _launched()
    if rank is None or world is None:
        message = "rank and world are only known together"
        raise invalid(message, "rank" if world is None else "world", "give both, or neither")
    world = whole("world", world, 1)
    return Rank(whole("rank", rank, 0, world - 1), world)


def _launched() -> Rank:
    ranks = [rank for rank in (*map(_rank, LAUNCHERS), _host()) if rank is not None]
    for inner, outer in ((ranks[0], outer) for outer in ranks[1:]):
        processes, rest = divmod(inner.world, outer.world)
        if rest or (processes == 1 and inner.rank != outer.rank):
            message = f"it is {inner} by {inner.said_by}, but {outer} by {outer.said_by}"
            raise invalid(message, "rank", _ARGUMENTS)
    if not ranks:
        return Rank(0, 1)
    _log(ranks[0])
    return ranks[0]


def _rank(launcher: Launcher) -> Rank | None:
    """What a launcher says; None if it has not started this process."""
    if launcher.rank.startswith("SLURM") and _is_outside_of_a_step():
        return None
    rank, world = (_number(name) for name in (launcher.rank, launcher.world))
    if rank is None and world is None:
        return None
    if rank is None or world is None:
        missing, present = launcher[:2] if rank is None else launcher[1::-1]
        raise invalid(f"{present} is set, {missing} is not", present, f"set both, or {_ARGUMENTS}")
    world = whole(launcher.world, world, 1)
    said_by = f"{launcher.rank} and {launcher.world}"
    return Rank(whole(launcher.rank, rank, 0, world - 1), world, said_by)


def _is_outside_of_a_step() -> bool:
    """Whether this is a batch script, or a shell, of Slurm, which are no ranks though numbered."""
    return "SLURM_JOB_ID" in os.environ and "SLURM_STEP_ID" not in os.environ


def _number(variable: str) -> int | None:
    text = os.environ.get(variable)
    try:
        return int(text) if text else None
    except ValueError:
        raise invalid(f"{text!r} is no number", variable, f"unset it, or {_ARGUMENTS}") from None


def _host() -> Rank | None:
    """In a training job of SageMaker, the number of the instance."""
    hosts, current = os.environ.get("SM_HOSTS"), os.environ.get("SM_CURRENT_HOST")
    try:
        names: Any = json.loads(hosts) if hosts else None
        if not hosts and not current:
            config = resource_config()
            names, current = config.get("hosts"), config.get("current_host")
        if not names and not current:
            return None
        return Rank(names.index(current), len(names), "SageMaker")
    except (ValueError, AttributeError):
        message = f"instance {current!r} is none of {hosts}"
        raise invalid(message, "SM_HOSTS", _ARGUMENTS) from None


@cache
def _log(rank: Rank) -> None:
    logging.getLogger("larder").info("%s, by %s", rank, rank.said_by)
