"""What happens to the loader of a row, and what its batches are compared with meanwhile."""

from __future__ import annotations

import copy
import gc
import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from larder.errors import LarderError
from tests.oracle.lab import Asked
from tests.oracle.oracle import Draw, differs

MOST = 26  # batches of a row


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


class Scene:
    """A row as it is played."""

    def __init__(self, asked: Asked, seed: int) -> None:
        self.asked, self.row, self.draw = asked, asked.row, random.Random(seed)
        self.rank, self.world = map(int, self.row["rank"].split("/"))
        self.wanted = asked.wanted(self.world)
        self.length = self.wanted.length()
        self.kept: list[tuple[Any, Any, str]] = []
        self.skipped = 0
        self.child: _Child | None = None

    def play(self) -> None:
        """Read, stop, and go on in another run; `Difference` is the first one."""
        if self.length == 0:
            return
        try:
            self._read()
        finally:
            if self.child:
                self.child.end()
        self.compare_kept()

    def _read(self) -> None:
        loader = self.asked.loader(self.rank, self.world, self.row["workers"])
        if len(loader) != self.length:
            raise Difference(f"len is {len(loader)} instead of {self.length}")
        self._compare_keys(loader, 0)
        number = first = self._left(loader) if self.row["leave"] != "no" else 0
        end = min(first + self.row.get("most", MOST), 2 * self.length + 1)
        stop = self.draw.randrange(first, end) + 1
        while number < stop:
            batches = iter(loader)
            last = min(stop, (number // self.length + 1) * self.length)
            middle = self.draw.randrange(number, last)
            self._take(batches, number, middle)
            if self.row["kill"]:
                self._kill()
            if self.row["fork"] != "no" and self.child is None:
                self.child = _Child(self)
            self._take(batches, middle, last)
            number = last
        skipped = loader.skipped.count if "consumer" not in self.row else self.skipped
        if self.row["leave"] == "no" and skipped != self.skipped:
            raise Difference(f"skipped are {skipped} samples, not {self.skipped}")
        state = json.loads(json.dumps(loader.state_dict()))
        del batches, loader
        gc.collect()
        self._go_on(state, stop, end)

    def _left(self, loader: Any) -> int:
        """Leave an iteration; the number of the batch with which the next one begins."""
        taken = self.draw.randrange(1, min(self.length, 9) + 1)
        self._take(iter(loader), 0, taken)
        if self.row["leave"] == "skip":
            loader.skip(0)
            return taken
        return taken if taken == self.length else 0

    def _go_on(self, state: Any, number: int, end: int) -> None:
        """Another run, with another number of ranks, goes on from the state."""
        if self.row["batch"] != "per rank":
            self.world = self.draw.choice((1, 2, 3))
            self.rank = self.draw.randrange(self.world)
        place = self.draw.choice(("directory", self.row["place"]))
        loader = self.asked.loader(self.rank, self.world, self.row["resumed"], place)
        loader.load_state_dict(state)
        self._compare_keys(loader, number)
        at = loader.epoch, loader.batches
        if self.row.get("consumer") != "stateful" and at != divmod(number, self.length):
            raise Difference(f"the state is of epoch and batch {at}, after {number} batches")
        while number < end:
            last = min(end, (number // self.length + 1) * self.length)
            self._take(iter(loader), number, last)
            number = last

    def _compare_keys(self, loader: Any, first: int) -> None:
        """Compare the keys that a loader names of some batches, before it reads any."""
        singles = getattr(self.wanted, "loaders", [self.wanted])
        for number in () if "consumer" in self.row else range(first, 2 * self.length, 3):
            place = divmod(number, self.length)
            part = self.wanted.part(*place, self.rank, self.world)
            keys = [singles[draw.loader].dataset.samples[draw.sample].key for draw in part]
            if found := differs(loader.keys(*place), keys):
                raise Difference(f"keys of batch {number}: {found}")

    def _take(self, batches: Iterator[Any], number: int, end: int) -> None:
        for place in range(number, end):
            wanted = self._expected(place)
            try:
                got = next(batches)
            except Exception as error:  # frameworks raise others in place of Larder's
                if wanted is LarderError:
                    raise EndedError from None
                raise Difference(f"batch {place}: {error}") from error
            if found := differs(got, wanted):
                raise Difference(f"batch {place} of rank {self.rank} of {self.world}: {found}")
            self._keep(got, wanted, place)

    def _expected(self, number: int) -> Any:
        """The batch of a number, counted through all epochs; LarderError if none can be made."""
        part = self.wanted.part(*divmod(number, self.length), self.rank, self.world)
        good = [draw for draw in part if not self._is_bad(draw)]
        self.skipped += len(part) - len(good)
        if not good:
            return LarderError
        # The samples that are left move up, and from the first on they are repeated.
        return self.wanted.batch([good[place % len(good)] for place in range(len(part))])

    def _is_bad(self, draw: Draw) -> bool:
        return draw.sample in self.asked.bad(self.asked.forms[draw.loader])

    def _keep(self, got: Any, wanted: Any, number: int) -> None:
        """Some batches are kept, as the row says, and compared again at the end."""
        if self.draw.random() > 0.4:
            return
        if self.row["keep"] == "views":
            got, wanted = ([array[:1] for array in arrays(batch)] for batch in (got, wanted))
        if self.row["keep"] == "written":
            wanted = copy.deepcopy(wanted)
            for array in arrays([got, wanted]):
                array[...] = 7
        self.kept.append((got, wanted, f"batch {number}, kept ({self.row['keep']})"))

    def compare_kept(self) -> None:
        for got, wanted, name in self.kept:
            if found := differs(got, wanted):
                raise Difference(f"{name}, later: {found}")

    def _kill(self) -> None:
        """Kill a process that makes batches."""
        for process in processes()[-1:]:
            os.kill(process, signal.SIGKILL)


def processes() -> list[int]:
    """The processes of Larder that make batches for this one."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == os.getpid() and b"larder.jobs" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


def arrays(batch: Any) -> list[Any]:
    """The arrays of a batch, in its order of names."""
    if isinstance(batch, dict):
        return [array for name in sorted(batch) for array in arrays(batch[name])]
    if isinstance(batch, (list, tuple)):
        return [array for value in batch for array in arrays(value)]
    return [batch] if isinstance(batch, np.ndarray) and batch.ndim else []


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
                if scene.row["fork"] == "writes":
                    for array in arrays([got for got, _, _ in scene.kept]):
                        array[...] = 9
                code = 0
            finally:
                os._exit(code)
        scene.kept = scene.kept[::2]

    def end(self) -> None:
        os.close(self._say)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._hear)
        if code:
            raise Difference("a forked child sees other batches than were kept")
