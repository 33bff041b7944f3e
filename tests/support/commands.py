"""The real command in a directory of its own, as for a user."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.processes import CHECKOUT

LIMIT_SECONDS = 240.0
_NOT_INHERITED = ("PREFECT_", "LARDER_", "IMAGENET_")


@dataclass(frozen=True, slots=True)
class Finished:
    """A command that has ended; ``status`` is negative for the signal that ended it.

    ``err`` lacks the lines that were read before by `Running.lines`.
    """

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document


class Running:
    """A command that runs in a process group of its own, as a shell starts it."""

    def __init__(self, command: list[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def lines(self) -> Iterator[str]:
        assert self.process.stderr is not None, "stderr is a pipe"
        for line in self.process.stderr:
            yield line.rstrip("\n")

    def read_until(self, beginning: str) -> str:
        """Read stderr up to a line with this beginning, and return it; else `EOFError`."""
        seen = []
        for line in self.lines():
            seen.append(line)
            if line.startswith(beginning):
                return line
        status = self.wait().status
        raise EOFError(f"no line began with {beginning!r}; ended with {status}: {seen}")

    def send(self, number: int) -> None:
        """Send a signal to the process group, as a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, number)

    def wait(self) -> Finished:
        # Not communicate(), which loses what `lines` has read ahead.
        pipes = [pipe for pipe in (self.process.stdout, self.process.stderr) if pipe]
        with ThreadPoolExecutor(len(pipes)) as pool:
            texts = [pool.submit(pipe.read) for pipe in pipes]
            try:
                status = self.process.wait(timeout=LIMIT_SECONDS)
            except subprocess.TimeoutExpired:
                self.send(signal.SIGKILL)
                shown = "".join(text.result() for text in texts)
                raise TimeoutError(f"the command did not end: {shown}") from None
            out, err = (text.result() for text in texts)
        for pipe in pipes:
            pipe.close()
        return Finished(status, out, err)


class Workplace:
    """An empty directory with configs, home and temporary directory, to run commands in."""

    def __init__(self, folder: Path, **environment: str) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        home = folder / "home"
        for made in (self.temporary, home):
            made.mkdir()
        shutil.copytree(CHECKOUT / "configs", folder / "configs")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_INHERITED)}
        self.environment: dict[str, str] = {
            **inherited,
            "PYTHONPATH": str(CHECKOUT),
            "HOME": str(home),
            "TMPDIR": str(self.temporary),
            "PREFECT_HOME": str(home / ".prefect"),
            **environment,
        }

    @property
    def storage(self) -> Path:
        return self.folder / "data/local"

    def start(
        self, *arguments: str, python: tuple[str, ...] = ("-m", "flows.prepare"), **environment: str
    ) -> Running:
        """Start ``python -m flows.prepare ARGUMENTS``, or another program in Python."""
        return Running(
            [sys.executable, *python, *arguments], self.folder, {**self.environment, **environment}
        )

    def run(
        self, *arguments: str, python: tuple[str, ...] = ("-m", "flows.prepare"), **environment: str
    ) -> Finished:
        return self.start(*arguments, python=python, **environment).wait()

    def processes(self) -> dict[int, str]:
        """The command lines of the processes that have this temporary directory."""
        mark = f"TMPDIR={self.temporary}".encode()
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if mark in (folder / "environ").read_bytes().split(b"\0"):
                    found[int(folder.name)] = (folder / "cmdline").read_text()
        return found

    def files(self) -> dict[str, tuple[int, int]]:
        found = sorted(self.folder.rglob("*"))
        return {
            str(path.relative_to(self.folder)): (path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in found
        }
