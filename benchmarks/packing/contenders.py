"""Who packs a set of files, each turn in a process of its own, and checked after it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from benchmarks.harness import Contender, Measured, apart, ask_program
from benchmarks.packing.bodies import SHARD_BYTES, Setting
from benchmarks.packing.checks import check_all
from benchmarks.packing.ours import TAR, turn, turn_of_two
from benchmarks.packing.peers import MDS, TENSORFLOW, WEBDATASET, gnu_tar

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
        OURS: partial(_checked, "tar", setting, count, partial(apart, turn, setting, TAR)),
        OURS_TWO: partial(_checked, "tar", setting, count, partial(turn_of_two, setting, TAR)),
        GNU_TAR: partial(_checked, "tar", setting, count, partial(gnu_tar, _request(setting))),
    }
    return found | {
        name: _peer(setting, count, python, name) for name in (WEBDATASET, MDS) if name in peers
    }


def formats(
    setting: Setting, count: int, python: str, peers: Sequence[str]
) -> dict[str, Contender]:
    """The formats of ours, and TensorFlow's writer beside TFRecord."""
    found: dict[str, Contender] = {
        name: partial(_checked, checked, setting, count, partial(apart, turn, setting, name))
        for name, checked in FORMATS.items()
    }
    if TENSORFLOW in peers:
        pack = partial(turn_of_two, setting, TFRECORD)
        found[TFRECORD_TWO] = partial(_checked, FORMATS[TFRECORD], setting, count, pack)
        found[TENSORFLOW] = _peer(setting, count, python, TENSORFLOW)
    return found


def ask(python: str, request: Mapping[str, Any]) -> dict[str, Any]:
    return ask_program(python, "benchmarks.packing.peers", request)


def _checked(kind: str, setting: Setting, count: int, turn: Callable[[], Measured]) -> Measured:
    """A turn whose result is checked after its time."""
    seconds = turn()
    check_all(kind, setting, count)
    return seconds


def _peer(setting: Setting, count: int, python: str, name: str) -> Contender:
    request = {"peer": name, **_request(setting)}
    return partial(_checked, _CHECKED[name], setting, count, partial(ask, python, request))


def _request(setting: Setting) -> dict[str, Any]:
    return {
        "files": str(setting.files),
        "names": str(setting.names),
        "out": str(setting.out),
        "shard_bytes": SHARD_BYTES,
    }
