"""Rank of this process among the processes that train together, from its launcher."""

from __future__ import annotations

import json
import logging
import os
import sys
from functools import cache
from typing import Any, Final, NamedTuple

from larder.errors import ConfigError
from larder.readers.sagemaker import resource_config
from larder.readers.schedule import invalid, whole


class Launcher(NamedTuple):
    """Variables with the number of a process, the number of all, and the number on its machine."""

    rank: str
    world: str
    local_world: str = ""


_SLURM: Final = Launcher("SLURM_PROCID", "SLURM_NTASKS")

_OF_MPI: Final = ("RANK", "SIZE", "LOCAL_SIZE")

LAUNCHERS: Final = (
    Launcher("RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    Launcher(*(f"OMPI_COMM_WORLD_{each}" for each in _OF_MPI)),
    Launcher("PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    Launcher(*(f"MV2_COMM_WORLD_{each}" for each in _OF_MPI)),
    Launcher(*(f"HOROVOD_{each}" for each in _OF_MPI)),
    _SLURM,
)
"""torchrun, PyTorchJobs of Kubeflow, and Determined; Open MPI; MPICH; MVAPICH; Horovod; srun.

A later launcher may have started an earlier one, as srun starts torchrun.
"""

_GIVEN: Final = "rank= and world="

_ARGUMENTS: Final = f"give {_GIVEN}"


class Rank(NamedTuple):
    """Number of a process, from 0, among ``world`` processes, and the source of both."""

    rank: int
    world: int
    said_by: str = ""

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.world}"


def rank_of(rank: Any, world: Any) -> Rank:
    """Return the given rank, else the rank in torch.distributed, else the launcher's, else 0 of 1.

    Each given rank may stand for several ranks of torch.distributed, as 0 of 1 stands for all.
    """
    if rank is None and world is None:
        return _launched()
    if rank is None or world is None:
        message = "rank and world are only known together"
        raise invalid(message, "rank" if world is None else "world", "give both, or neither")
    world = whole("world", world, 1)
    given = Rank(whole("rank", rank, 0, world - 1), world, _GIVEN)
    if distributed := _distributed():
        hint = f"leave both out, or give a world= that divides {distributed.world}"
        _compare(distributed, given, hint)
    return given


def refuse_ranks(where: str) -> None:
    """Refuse a loader made without a rank if torch.distributed has several ranks by now."""
    distributed = _distributed()
    if distributed and distributed.world > 1:
        message = f"it was made when no rank was known, and this is {distributed} by now"
        hint = "make it after torch.distributed.init_process_group, or give rank= and world="
        raise invalid(message, where, hint)


def is_one_of_several() -> bool:
    """Whether torch.distributed, a launcher or SageMaker tells this process of other ranks.

    A contradiction counts as one: the first loader that is made without a rank refuses it.
    """
    try:
        return any(rank.world > 1 for rank in _ranks())
    except ConfigError:
        return True


def ranks_of_machine() -> int:
    """Return the number of processes that train on this machine and share its cores.

    srun is not asked: it gives each process cores of its own.
    """
    sizes = (os.environ.get(each.local_world, "") for each in LAUNCHERS if each.local_world)
    return max(1, next((int(size) for size in sizes if size.isdecimal()), 1))


def _ranks() -> list[Rank]:
    """List the ranks that torch.distributed, each launcher and SageMaker give, inner ones first."""
    distributed = _distributed()
    launched = (_rank(launcher, distributed) for launcher in LAUNCHERS)
    return [rank for rank in (distributed, *launched, _host()) if rank is not None]


def _launched() -> Rank:
    ranks = _ranks()
    for outer in ranks[1:]:
        _compare(ranks[0], outer, _ARGUMENTS)
    if not ranks:
        return Rank(0, 1)
    _log(ranks[0])
    return ranks[0]


def _compare(inner: Rank, outer: Rank, hint: str) -> None:
    """Refuse ranks that contradict each other; an outer rank may be several inner ranks."""
    processes, rest = divmod(inner.world, outer.world)
    if rest or (processes == 1 and inner.rank != outer.rank):
        message = f"it is {inner} by {inner.said_by}, but {outer} by {outer.said_by}"
        raise invalid(message, "rank", hint)


def _distributed() -> Rank | None:
    """Return the rank in torch.distributed if initialised, without importing torch."""
    module = sys.modules.get("torch.distributed")
    if module is None or not (module.is_available() and module.is_initialized()):
        return None
    return Rank(module.get_rank(), module.get_world_size(), "torch.distributed")


def _rank(launcher: Launcher, distributed: Rank | None) -> Rank | None:
    """Return the rank from a launcher; None if the launcher did not start this process."""
    rank, world = (os.environ.get(name, "") for name in launcher[:2])
    # A batch script or shell of Slurm has a number, but no rank.
    is_shell = "SLURM_JOB_ID" in os.environ and "SLURM_STEP_ID" not in os.environ
    if not rank + world or (launcher is _SLURM and is_shell):
        return None
    if distributed and not rank and world.isdecimal():  # Lightning sets WORLD_SIZE alone
        rank = str(distributed.rank % max(1, int(world)))
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        message = f"{rank!r} of {launcher.world} {world!r} is no rank"
        raise invalid(message, launcher.rank, f"set both, or {_ARGUMENTS}")
    return Rank(int(rank), int(world), f"{launcher.rank} and {launcher.world}")


def _host() -> Rank | None:
    """Return the number of the instance in a training job of SageMaker."""
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
