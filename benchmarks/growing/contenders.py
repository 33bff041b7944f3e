"""Who packs the body: Larder and its peers, each turn in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from benchmarks.growing.body import Body
from benchmarks.growing.folders import Folder
from benchmarks.growing.names import Picks
from benchmarks.growing.ours import Measured, prepare_once
from benchmarks.growing.peers import AGAIN, PEERS
from benchmarks.growing.stores import Moved
from benchmarks.harness import apart, ask_program, say

OURS = "Larder"
PEER_NAMES = tuple(PEERS)


class Contender(Protocol):
    """Packs the body once, into a folder."""

    name: str
    folder: Folder
    again: bool
    """Whether it writes everything again, into an empty folder."""

    def turn(self, picks: Picks, fields: Mapping[str, Any], *, first: bool) -> Measured:
        """Pack the body as it is after a change, beside what the first build left."""


class Ours(Contender):
    """Larder, with the same fields of the dataset file in every turn."""

    def __init__(self, body: Body, fields: Mapping[str, Any], path: Path) -> None:
        self.name = OURS
        self.again = False
        self.folder = Folder(path, path.with_name("ours.kept"))
        self._body = body
        self._fields = fields

    @property
    def root(self) -> Path:
        """The dataset's folder in the storage."""
        return self.folder.path / "storage" / "larder" / "d"

    def turn(self, picks: Picks, fields: Mapping[str, Any], *, first: bool) -> Measured:
        del first
        found = apart(
            prepare_once, self._body, {**self._fields, **fields}, str(self.folder.path), picks
        )
        measured = Measured(**{**found, "moved": Moved(**found["moved"])})
        configs = sum(each.stat().st_size for each in self.folder.path.glob("configs/**/*.*"))
        counted = sum(measured.moved.written.values()) + configs
        on_disk = self.folder.written_bytes()
        assert on_disk <= counted, f"{on_disk:,} bytes were written, {counted:,} were counted"
        return measured


class Peer(Contender):
    """One of `benchmarks.growing.peers`, run by the Python that has its package."""

    def __init__(self, name: str, python: str, body: Body, path: Path) -> None:
        self.name = name
        self.again = name in AGAIN
        # DVC's place is beside the files; what is kept is not, as DVC looks through all there is.
        out = Path(body.files).with_name(".dvc") if name == "DVC" else path
        self.folder = Folder(out, path.with_name(f"{path.name}.kept"))
        self._python = python
        self._body = body

    def turn(self, picks: Picks, fields: Mapping[str, Any], *, first: bool) -> Measured:
        del fields
        body = self._body
        request = {
            "peer": self.name,
            "real": body.real,
            "files": body.files,
            "count": body.count,
            "ext": body.names.ext,
            "mean_bytes": body.mean_bytes,
            "shard_bytes": body.shard_bytes,
            "picks": asdict(picks),
            "out": str(self.folder.path),
            "first": first,
        }
        found = ask(self._python, request)
        return Measured(written_bytes=self.folder.written_bytes(), **found)


def ask(python: str, request: Mapping[str, Any]) -> dict[str, Any]:
    return ask_program(python, "benchmarks.growing.peers", request)


def installed_peers(python: str) -> Mapping[str, str]:
    """The version of each peer that a Python has; says which ones it lacks."""
    found = ask(python, {})
    for name in PEER_NAMES:
        note = "not installed (see benchmarks/requirements-growth.txt)"
        say(f"{name}: {found.get(name, note)}")
    return found


def contenders(
    body: Body, fields: Mapping[str, Any], python: str, peers: Sequence[str], place: Path
) -> tuple[Ours, list[Peer]]:
    """Ours, and those of the peers that can pack the body: DVC adds files only."""
    able = [name for name in peers if body.real or name != "DVC"]
    return Ours(body, fields, place / "ours"), [
        Peer(name, python, body, place / name.replace(" ", "-")) for name in able
    ]
