"""What happens to the loader of a row, and what its batches are compared with meanwhile."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from larder.errors import LarderError
from tests.oracle.lab import Asked
from tests.oracle.oracle import Draw, differs

MOST = 26  # batches of a row


def ranks_of(text: str) -> tuple[int, int]:
    rank, world = text.split("/")
    return int(rank), int(world)


def processes() -> list[int]:
    """The processes of Larder that make batches for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"larder.jobs" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


class Scene:
    """A row as it is played: the first difference is kept as text."""

    def __init__(self, asked: Asked, seed: int) -> None:
        self.asked, self.draw = asked, random.Random(seed)
        self.rank, self.world = ranks_of(asked.row["rank"])
        self.wanted = asked.wanted(self.world)
        self.length = self.wanted.length()
        self.kept: list[tuple[Any, Any, str]] = []
        self.skips = 0

    def expected(self, number: int, rank: int, world: int) -> Any:
        """The batch of a number, counted through all epochs; LarderError if none can be made."""
        epoch, place = divmod(number, self.length)
        part = self.wanted.part(epoch, place, rank, world)
        good = [draw for draw in part if not self._is_bad(draw)]
        self.skips += len(part) - len(good)
        if not good:
            return LarderError
        # The samples that are left move up, and from the first on they are repeated.
        return self.wanted.batch([good[place % len(good)] for place in range(len(part))])

    def _is_bad(self, draw: Draw) -> bool:
        return draw.sample in self.asked.bad(self.asked.forms[draw.loader])

    def compare(self, got: Any, number: int) -> None:
        wanted = self.expected(number, self.rank, self.world)
        if found := differs(got, wanted):
            raise Difference(f"batch {number} of rank {self.rank} of {self.world}: {found}")
        self._keep(got, wanted, number)

    def _keep(self, got: Any, wanted: Any, number: int) -> None:
        """A third of the batches is kept, as the row says, and compared again at the end."""
        if self.draw.random() > 0.4:
            return
        how = self.asked.row["keep"]
        if how == "written":
            for array in arrays(got):
                array[...] = 7
            self.kept.append((got, _written(wanted), f"written batch {number}"))
        elif how == "views":
            views = [array[:1] for array in arrays(got)]
            self.kept.append((views, [array[:1] for array in arrays(wanted)], f"views {number}"))
        else:
            self.kept.append((got, wanted, f"kept batch {number}"))

    def compare_kept(self) -> None:
        for got, wanted, name in self.kept:
            if found := differs(got, wanted):
                raise Difference(f"{name}, later: {found}")

    def play(self) -> None:
        """Read, stop, and go on in another run; `Difference` is the first one."""
        if self.length == 0:
            return
        loader = self.asked.loader(self.rank, self.world, self.asked.row["workers"])
        if len(loader) != self.length:
            raise Difference(f"len is {len(loader)} instead of {self.length}")
        first = self._left(loader) if self.asked.row["leave"] != "no" else 0
        end = min(first + self.asked.row.get("most", MOST), 2 * self.length + 1)
        stop = self.draw.randrange(first, end) + 1
        child = None
        number = first
        while number < stop:
            batches = iter(loader)
            last = min(stop, (number // self.length + 1) * self.length)
            middle = self.draw.randrange(number, last)
            self._take(batches, number, middle)
            if self.asked.row["kill"]:
                self._kill()
            if self.asked.row["fork"] != "no" and child is None:
                child = _Child(self)
            self._take(batches, middle, last)
            number = last
        state = json.loads(json.dumps(loader.state_dict()))
        del batches, loader
        gc.collect()
        self._go_on(state, stop, end)
        if child:
            child.end()
        self.compare_kept()

    def _left(self, loader: Any) -> int:
        """Leave an iteration; the number of the batch with which the next one begins."""
        taken = self.draw.randrange(1, min(self.length, 9) + 1)
        self._take(iter(loader), 0, taken)
        if self.asked.row["leave"] == "skip":
            loader.skip(0)
            return taken
        return taken if taken == self.length else 0

    def _take(self, batches: Iterator[Any], number: int, end: int) -> None:
        for place in range(number, end):
            try:
                got = next(batches)
            except LarderError as error:
                if self.expected(place, self.rank, self.world) is LarderError:
                    raise EndedError from None
                raise Difference(f"batch {place}: {error}") from error
            self.compare(got, place)

    def _go_on(self, state: Any, number: int, end: int) -> None:
        """Another run, with another number of ranks, goes on from the state."""
        asked, draw = self.asked, self.draw
        if asked.row["batch"] != "per rank":
            self.world = draw.choice((1, 2, 3))
            self.rank = draw.randrange(self.world)
        place = draw.choice(("directory", asked.row["place"]))
        loader = asked.loader(self.rank, self.world, asked.row["resumed"], place)
        loader.load_state_dict(state)
        at = loader.epoch, loader.batches
        if asked.row.get("consumer") != "stateful" and at != divmod(number, self.length):
            raise Difference(f"the state is of epoch and batch {at}, after {number} batches")
        while number < end:
            last = min(end, (number // self.length + 1) * self.length)
            self._take(iter(loader), number, last)
            number = last

    def _kill(self) -> None:
        """Kill a process that makes batches, at a random moment."""
        workers = processes()
        if workers:
            worker, wait = self.draw.choice(workers), self.draw.random() / 50

            def kill() -> None:
                with suppress(ProcessLookupError):
                    os.kill(worker, signal.SIGKILL)

            threading.Timer(wait, kill).start()


class Difference(Exception):  # noqa: N818
    """A batch is not what it must be."""


class EndedError(Exception):
    """The error came that the documentation names, so the row has nothing more to compare."""


def play(asked: Asked, seed: int) -> str | None:
    """Play a row; the first difference, or None."""
    try:
        Scene(asked, seed).play()
    except Difference as difference:
        return str(difference)
    except EndedError:
        return None
    return None


def arrays(batch: Any) -> list[Any]:
    """The arrays of a batch, in its order of names."""
    if isinstance(batch, dict):
        return [array for name in sorted(batch) for array in arrays(batch[name])]
    if isinstance(batch, (list, tuple)):
        return [array for value in batch for array in arrays(value)]
    return [batch] if isinstance(batch, np.ndarray) and batch.ndim else []


def _written(batch: Any) -> Any:
    batch = copy.deepcopy(batch)
    for array in arrays(batch):
        array[...] = 7
    return batch


class _Child:
    """A forked process, which compares the batches that are kept later, and may write to them.

    Its parent goes on to keep every other one of them.
    """

    def __init__(self, scene: Scene) -> None:
        self._hear, self._say = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                os.close(self._say)
                os.read(self._hear, 1)
                scene.compare_kept()
                code = 0
                for array in arrays([got for got, _, _ in scene.kept]):
                    if scene.asked.row["fork"] == "writes":
                        array[...] = 9
            finally:
                os._exit(code)
        scene.kept = scene.kept[::2]

    def end(self) -> None:
        os.close(self._say)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._hear)
        if code:
            raise Difference("a forked child sees other batches than were kept")
