"""Which of the processes that train together this one is, as whoever started it says."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from larder.readers.sagemaker import resource_config
from larder.readers.schedule import invalid, whole


class Launcher(NamedTuple):
    """The variables in which a launcher numbers the processes, and those of one machine."""

    rank: str
    world: str
    local: str
    local_world: str = ""


_SLURM: Final = Launcher("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID")

_OF_MPI: Final = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")

LAUNCHERS: Final = (
    Launcher("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    Launcher(*(f"OMPI_COMM_WORLD_{each}" for each in _OF_MPI)),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
    Launcher(*(f"MV2_COMM_WORLD_{each}" for each in _OF_MPI)),
    Launcher("HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_RANK", "HOROVOD_LOCAL_SIZE"),
    _SLURM,
)
"""torchrun, PyTorchJobs of Kubeflow, and Determined; Open MPI; MPICH; MVAPICH; Horovod; srun.

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


def ranks_of_machine() -> int:
    """How many processes of this machine train together, which share its cores. srun gives each
    cores of its own.
    """
    sizes = (os.environ.get(each.local_world, "") for each in LAUNCHERS if each.local_world)
    return max(1, next((int(size) for size in sizes if size.isdecimal()), 1))


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


def is_numbered_only(launcher: Launcher, environment: Mapping[str, str]) -> bool:
    """Whether it is a batch script or shell of Slurm, which are numbered, but no ranks."""
    is_step = "SLURM_JOB_ID" not in environment or "SLURM_STEP_ID" in environment
    return launcher is _SLURM and not is_step


def _rank(launcher: Launcher) -> Rank | None:
    """What a launcher says; None if it has not started this process."""
    rank, world = (os.environ.get(name, "") for name in launcher[:2])
    if not rank + world or is_numbered_only(launcher, os.environ):
        return None
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        message = f"{rank!r} of {launcher.world} {world!r} is no rank"
        raise invalid(message, launcher.rank, f"set both, or {_ARGUMENTS}")
    return Rank(int(rank), int(world), f"{launcher.rank} and {launcher.world}")


def _host() -> Rank | None:
    """In a training job of SageMaker, the number of the instance."""
    hosts, current = os.environ.get("SM_HOSTS"), os.environ.get("SM_CURRENT_HOST")
    try:
        config = {"hosts": json.loads(hosts or "[]"), "current_host": current}
        config = config if hosts or current else resource_config()
        if not config:
            return None
        names = config["hosts"]
        return Rank(names.index(config["current_host"]), len(names), "SageMaker")
    except (ValueError, LookupError, AttributeError):
        message = f"instance {current!r} is none of {hosts}"
        raise invalid(message, "SM_HOSTS", _ARGUMENTS) from None


@cache
def _log(rank: Rank) -> None:
    logging.getLogger("larder").info("%s, by %s", rank, rank.said_by)
