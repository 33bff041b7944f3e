"""Who packs a set of files, each turn in a process of its own, and checked after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.harness import Contender, apart, ask_program
from benchmarks.packing.bodies import SHARD_BYTES, Setting
from benchmarks.packing.checks import check_all
from benchmarks.packing.ours import TAR, turn, turn_of_two
from benchmarks.packing.peers import MDS, TENSORFLOW, WEBDATASET, gnu_tar

__all__ = ["GNU_TAR", "OURS", "OURS_TWO", "TFRECORD", "TFRECORD_TWO", "ask", "formats", "tars"]

OURS = "ours"
OURS_TWO = "ours, two processes"
GNU_TAR = "GNU tar"

TFRECORD = "tfrecord"
TFRECORD_TWO = "tfrecord, two processes"

FORMATS = {TAR: "tar", TFRECORD: "tfrecord", "recordio": "recordio", "parquet": "parquet"}
"""Formats of ours that are compared, with what checks each."""


_CHECKED = {WEBDATASET: "tar", MDS: "mds", TENSORFLOW: "tfrecord"}


def tars(setting: Setting, count: int, python: str, peers: Sequence[str]) -> dict[str, Contender]:
    """Packers of tars, and MDS beside them; ``python`` is that of the peers."""
    found = {
        OURS: _Turn(setting, count, "tar", partial(apart, turn, setting, TAR)),
        OURS_TWO: _Turn(setting, count, "tar", partial(turn_of_two, setting, TAR)),
        GNU_TAR: _Turn(setting, count, "tar", partial(gnu_tar, _request(setting))),
    }
    return found | {
        name: _peer(setting, count, python, name) for name in (WEBDATASET, MDS) if name in peers
    }


def formats(
    setting: Setting, count: int, python: str, peers: Sequence[str]
) -> dict[str, Contender]:
    """The formats of ours, and TensorFlow's writer beside TFRecord."""
    found: dict[str, Contender] = {
        name: _Turn(setting, count, checked, partial(apart, turn, setting, name))
        for name, checked in FORMATS.items()
    }
    if TENSORFLOW in peers:
        pack = partial(turn_of_two, setting, TFRECORD)
        found[TFRECORD_TWO] = _Turn(setting, count, FORMATS[TFRECORD], pack)
        found[TENSORFLOW] = _peer(setting, count, python, TENSORFLOW)
    return found


def ask(python: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """The answer of the peers' process; see `benchmarks.harness.ask_program`."""
    return ask_program(python, "benchmarks.packing.peers", request)


class _Turn:
    """A turn whose result is checked after its time."""

    def __init__(self, setting: Setting, count: int, checked: str, turn: Contender) -> None:
        self._setting = setting
        self._count = count
        self._checked = checked
        self._turn = turn

    def __call__(self) -> Mapping[str, float]:
        seconds = self._turn()
        check_all(self._checked, self._setting, self._count)
        return seconds


def _peer(setting: Setting, count: int, python: str, name: str) -> Contender:
    request = {"peer": name, **_request(setting)}
    return _Turn(setting, count, _CHECKED[name], partial(ask, python, request))


def _request(setting: Setting) -> dict[str, Any]:
    return {
        "files": str(setting.files),
        "names": str(setting.names),
        "out": str(setting.out),
        "shard_bytes": SHARD_BYTES,
    }
