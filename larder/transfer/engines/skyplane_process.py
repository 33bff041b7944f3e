"""Starts the runner of Skyplane's environment in a process group of its own, and ends it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from larder.errors import ConfigError, printable

RUNNER = Path(__file__).with_name("skyplane_runner.py")
"""The program; it must not be imported."""

_CHECKOUT = Path(__file__).parents[3]
_LONGEST_LINE = 1 << 20
_LONGEST_MESSAGE = 400
_KILLED_SECONDS = 5.0
_CREDENTIAL_FOLDERS = (".aws", ".config/gcloud")
_PATHS = (
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
)
_NOT_PASSED_ON = ("PYTHON", "VIRTUAL_ENV", "SKYPLANE_", "GCP_SERVICE_ACCOUNT_FILE", "PREFECT_")
_SECRET_NAME = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL", re.IGNORECASE)
_SECRET = re.compile(
    r"(?:AKIA|ASIA)[A-Z0-9]{8,}"  # access keys
    r"|(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{40,}"  # AWS secrets, session tokens, parts of private keys
    r"|(?<=://)[^/\s@]+@"
    r"|-----BEGIN.*"
    r"|(?<=[?&])X-(?:Amz|Goog)-[A-Za-z-]+=[^&\s]*",
    re.DOTALL,
)
_HIDDEN = "***"


@dataclass(frozen=True, slots=True)
class Event:
    """A line of the runner.

    Attributes:
        name: See `larder.transfer.engines.skyplane_runner`.
        fields: What it says.
    """

    name: str
    fields: Mapping[str, Any]


def default_python() -> Path:
    """The Python of the environment that ``make skyplane`` makes."""
    return _CHECKOUT / ".venv-skyplane" / "bin" / "python"


def private_home() -> Path:
    """Make a folder that only this user can read, for the keys that Skyplane makes.

    The user's own folders of credentials appear in it, as links. The caller removes it.
    """
    home = Path(tempfile.mkdtemp(prefix="larder-skyplane-"))
    for name in _CREDENTIAL_FOLDERS:
        own = Path.home() / name
        if own.is_dir():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(own)
    return home


def runner_environment(home: Path, extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of the runner: the caller's, without other Pythons, at home in ``home``."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
    # Skyplane has its own home: a path that begins with ~ is that of the user.
    kept |= {name: os.path.expanduser(kept[name]) for name in _PATHS if name in kept}
    return {
        **kept,
        "HOME": str(home),
        "SKYPLANE_CONFIG": str(home / ".skyplane" / "config"),
        "SKYPLANE_USAGE_STATS_ENABLED": "0",
        **extra,
    }


class RunnerProcess:
    """A running runner.

    Args:
        python: The Python of Skyplane's environment.
        runner: The program.
        request: Its first line of stdin.
        home: Its HOME, with its log.
        extra: More environment variables.

    Raises:
        ConfigError: ``config.missing_package``: the environment does not run.
    """

    def __init__(
        self,
        python: Path,
        runner: Path,
        request: Mapping[str, Any],
        home: Path,
        extra: Mapping[str, str],
    ) -> None:
        self.log = home / "log"
        with open(self.log, "ab") as log:
            os.chmod(self.log, 0o600)
            try:
                # -I: the folder of the program has a module named skyplane too.
                self._process = subprocess.Popen(  # noqa: S603 - a program of this package
                    [str(python), "-I", str(runner)],
                    env=runner_environment(home, extra),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    start_new_session=True,
                )
            except OSError as error:
                raise not_set_up(python, error.strerror or "it cannot be run") from error
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._ended = False
        with contextlib.suppress(OSError):  # it may have ended already
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        assert self._process.stdout is not None
        reading = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        reading.start()

    def event(self, timeout_seconds: float) -> Event | None:
        """The next event; None if there is none yet, or never again (see `ended`)."""
        if self._ended:
            return None
        try:
            event = self._events.get(timeout=timeout_seconds)
        except queue.Empty:
            return None
        self._ended = event is None
        return event

    @property
    def ended(self) -> bool:
        """Whether every event was returned and stdout is closed."""
        return self._ended

    def kill(self) -> int:
        """End the process and everything that it started, at once.

        Returns:
            Its exit status.
        """
        # Also after its own end: its children are in its group, whose ID is taken until it is
        # waited for.
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        try:
            return self._process.wait(_KILLED_SECONDS)
        except subprocess.TimeoutExpired:  # in an uninterruptible call of the kernel
            return -signal.SIGKILL

    def leave(self) -> None:
        """Let it finish by itself, even after this process."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        threading.Thread(target=self._process.wait, daemon=True).start()

    def _read(self, stdout: IO[bytes]) -> None:
        with contextlib.suppress(OSError, ValueError), stdout:
            while line := stdout.readline(_LONGEST_LINE):
                if event := _parsed(line):
                    self._events.put(event)
        self._events.put(None)


def not_set_up(python: Path, why: str) -> ConfigError:
    """The error that Skyplane's environment is missing or broken."""
    return ConfigError(
        "config.missing_package",
        f"Skyplane is not set up: {why}",
        where=str(python),
        hint="run `make skyplane`, or set copy.skyplane.python to the Python that has it",
    )


def without_secrets(message: str) -> str:
    """A message of another program as one short line, without anything that may be a credential."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name) and name not in _PATHS:
            message = message.replace(value, _HIDDEN)
    line = printable(" ".join(_SECRET.sub(_HIDDEN, message).split()))
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 3] + "..."


def _parsed(line: bytes) -> Event | None:
    """The event in a line; None if something else was printed there."""
    try:
        fields = json.loads(line)
    except ValueError:
        return None
    if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
        return None
    return Event(fields.pop("event"), fields)
