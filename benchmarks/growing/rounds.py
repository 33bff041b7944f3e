"""The rounds of one variant: a first build, and each step from there, the contenders in turns."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.growing.arithmetic import Shards, read_shards
from benchmarks.growing.body import FIRST, Body, Step, steps
from benchmarks.growing.contenders import Contender, Ours, Peer
from benchmarks.growing.files import make_spare, with_change
from benchmarks.growing.names import Picks
from benchmarks.growing.ours import Measured
from benchmarks.harness import numbered, say


@dataclass(frozen=True, slots=True)
class Result:
    """What one variant took: the turn of the median time by step and contender.

    ``shards`` are those of the first build, ``steps`` come after it.
    """

    body: Body
    variant: str
    measured: Mapping[str, Mapping[str, Measured]]
    shards: Shards
    steps: Sequence[Step]


def run_variant(variant: str, body: Body, ours: Ours, peers: Sequence[Peer], rounds: int) -> Result:
    """Build, then take every step from there; everybody's folder is removed at the end."""
    everybody: list[Contender] = [ours, *peers]
    every_step = steps(body.count)
    say(f"{body.name}, {variant}: {FIRST}")

    def build(contender: Contender) -> Measured:
        contender.folder.clear()
        os.sync()
        return contender.turn(Picks(), {}, first=True)

    measured = {FIRST: _rounds(everybody, rounds, build)}
    shards = read_shards(ours.root)
    for contender in everybody:
        if not contender.again:
            contender.folder.keep()
    for step in every_step:
        say(f"{body.name}, {variant}: {step.name}")
        with changed(body, step.picks):
            who = everybody if step.peers else [ours]
            measured[step.name] = _rounds(who, rounds, partial(_grow, step))
    for contender in everybody:
        contender.folder.drop()
    return Result(body, variant, measured, shards, every_step)


def _grow(step: Step, contender: Contender) -> Measured:
    if contender.again:
        contender.folder.clear()
    else:
        contender.folder.restore()
    os.sync()
    return contender.turn(step.picks, step.fields, first=False)


def _rounds(
    everybody: Sequence[Contender], rounds: int, turn: Callable[[Contender], Measured]
) -> dict[str, Measured]:
    """Let the contenders take turns; of each, the turn of the median time."""
    found: dict[str, list[Measured]] = {contender.name: [] for contender in everybody}
    for number in numbered(rounds):
        for contender in everybody:
            measured = turn(contender)
            say(f"  round {number} of {rounds}: {contender.name} {measured.seconds:.3f} s")
            if number:
                found[contender.name].append(measured)
    return {
        name: sorted(each, key=lambda one: one.seconds)[len(each) // 2]
        for name, each in found.items()
    }


def changed(body: Body, picks: Picks) -> AbstractContextManager[None]:
    """The body after a change, for a block; an invented body is told the change instead."""
    return _changed_files(body, picks) if body.real else nullcontext()


@contextmanager
def _changed_files(body: Body, picks: Picks) -> Iterator[None]:
    spare = Path(body.folder) / "spare"
    make_spare(spare, body.names, picks)
    with with_change(Path(body.files), spare, body.names, picks):
        yield
