"""Runs Skyplane in a process group of its own, and ends its machines in every case.

Skyplane starts machines beside both buckets, sends the bytes between them, and ends the machines.
Its last release, 0.3.2, is not maintained, so the caller verifies the objects that arrive.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from larder.config.models.copy_config import Skyplane
from larder.config.urls import parse_url
from larder.copy.skyplane.engine_choice import (
    CopyEnd,
    skyplane_available,
    skyplane_python,
    unsupported,
)
from larder.errors import ConfigError, LarderError, printable
from larder.progress import Progress
from larder.units import format_bytes, format_seconds

STAGE = "skyplane"
"""Name of the stage in the progress; its bytes are not verified."""

RUNNER = Path(__file__).with_name("runner.py")

_POLL_SECONDS = 0.2
_GRACE_SECONDS = 270.0
"""Seconds for the runner to end its machines by itself, before it is killed."""
_SWEEP_SECONDS = 300.0
_LAST_WORDS_SECONDS = 5.0
_LONGEST_LINE = 1 << 20
_LONGEST_MESSAGE = 400
_CREDENTIAL_FOLDERS = (".aws", ".config/gcloud")
_CREDENTIAL_FILES = (
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


@dataclass(frozen=True, slots=True)
class TransferResult:
    """Result of a transfer; a failed one may have ``sent`` bytes, which cost money."""

    done: bool
    sent: bool
    message: str


def check_skyplane(source: CopyEnd, target: CopyEnd, limits: Skyplane) -> None:
    """Refuse a transfer that Skyplane cannot make. Sends no request."""
    if not skyplane_available(limits):
        raise _not_set_up(skyplane_python(limits), "no such file")
    problem = unsupported(source, target)
    schemes = (parse_url(source.url).scheme, parse_url(target.url).scheme)
    if "gs" in schemes and not _project(source, target):
        problem = "no Google Cloud project is named: set project, or GOOGLE_CLOUD_PROJECT"
    if problem:
        message, hint = f"Skyplane cannot make this copy: {problem}", "set copy.engine: native"
        raise ConfigError("config.invalid_value", message, where="cluster.copy", hint=hint)


def transfer(
    source: CopyEnd,
    target: CopyEnd,
    keys: Iterable[str],
    *,
    limits: Skyplane,
    total_bytes: int,
    progress: Progress,
) -> TransferResult:
    """Send objects, in the order of their keys' bytes, to the same keys below the target's prefix.

    Empty objects, user metadata and most content types never arrive. After an error of
    ``progress``, the machines are ended in the background.
    """
    check_skyplane(source, target, limits)
    try:
        _check_buckets(source, target)
    except LarderError as error:
        return TransferResult(False, False, f"Skyplane was not started: {error}")
    home = _private_home()
    try:
        with open(home / "keys", "w", encoding="utf-8") as file:
            file.writelines(json.dumps(key) + "\n" for key in keys)
    except BaseException:
        shutil.rmtree(home)
        raise
    request = {
        "sweep": False,
        "source": source.url.rstrip("/") + "/",  # else the prefix of a sibling stops it for ever
        "target": target.url.rstrip("/") + "/",
        "project": _project(source, target),
        "requester_pays": source.access.requester_pays,
        "client": secrets.token_hex(16),  # the tag of the run's machines, also in names of keys
        "max_instances": limits.max_instances,
        "keys": str(home / "keys"),
    }
    environment = _environment(home, source, target)
    run = _Run(skyplane_python(limits), home, request, environment, progress)
    progress.start(STAGE, bytes=total_bytes)
    ended = run.transfer(limits.timeout_seconds)
    progress.finish(STAGE)
    return ended


@dataclass(frozen=True, slots=True)
class _Run:
    """One transfer, and a sweep after it if the transfer did not end its machines."""

    python: Path
    home: Path
    request: Mapping[str, Any]
    environment: Mapping[str, str]
    progress: Progress

    def transfer(self, timeout_seconds: float) -> TransferResult:
        """Run the transfer to its end, by force if necessary."""
        began = time.monotonic()
        process = self._start(self.request)
        in_time = self._watch(process, timeout_seconds, process)
        problem = process.error
        if not in_time:
            problem = f"it took longer than copy.skyplane.timeout_seconds, {timeout_seconds:g}"
        elif not (process.done or problem):
            problem = f"it ended with status {process.kill()}, without a word"
        left = "" if process.ended else self._sweep(process)
        took = format_seconds(time.monotonic() - began)
        message = f"Skyplane wrote {format_bytes(process.bytes)} in {took}"
        if problem:
            message = f"Skyplane failed after {took}: {problem}"
        if problem or left:
            log = self._keep_only_the_log()
            message = "; ".join(filter(None, (message, left, f"its output is in {log}")))
        else:
            shutil.rmtree(self.home, ignore_errors=True)
        return TransferResult(not problem, process.transferring, message)

    def _start(self, request: Mapping[str, Any]) -> _RunnerProcess:
        try:
            return _RunnerProcess(self.python, self.home, request, self.environment)
        except OSError as error:
            shutil.rmtree(self.home, ignore_errors=True)
            why = error.strerror or "it cannot be run"
            raise _not_set_up(self.python, why) from error

    def _watch(
        self, process: _RunnerProcess, timeout_seconds: float, transfer: _RunnerProcess
    ) -> bool:
        """Follow a runner to its end; return False if it ran out of time.

        A late runner is asked to stop, and killed after a time of grace. Machines that were
        announced are ended even if the progress fails.
        """
        shown, in_time = 0, True
        end = time.monotonic() + timeout_seconds
        try:
            while process.runs(_POLL_SECONDS):
                written = process.bytes
                self.progress.advance(STAGE, bytes=written - shown)
                shown = written
                now = time.monotonic()
                if now > end and in_time:
                    in_time = False
                    process.ask_to_stop()
                if now > end + _GRACE_SECONDS:
                    break
            self.progress.advance(STAGE, bytes=process.bytes - shown)
        except BaseException:
            process.kill()
            self._start(self._sweep_request(transfer, remove_home=True)).leave()
            raise
        process.kill()
        return in_time

    def _sweep(self, transfer: _RunnerProcess) -> str:
        """End the machines that a runner has left; if that failed, return which may still run."""
        process = self._start(self._sweep_request(transfer, remove_home=False))
        self._watch(process, _SWEEP_SECONDS, transfer)
        if process.ended or not transfer.regions:
            return ""
        return (
            f"ending its machines failed ({process.error or 'without a word'}): look in "
            f"{', '.join(transfer.regions)} for machines with the tag skyplaneclientid "
            f"{self.request['client']}, which otherwise switch themselves off within 15 minutes"
        )

    def _sweep_request(self, transfer: _RunnerProcess, *, remove_home: bool) -> dict[str, Any]:
        sweep = {"sweep": True, "regions": transfer.regions, "remove_home": remove_home}
        return {**self.request, **sweep}

    def _keep_only_the_log(self) -> Path:
        """Delete everything but the log, as other files may have keys; return the log's path."""
        for path in self.home.iterdir():
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            elif path.name != "log":
                path.unlink()
        return self.home / "log"


class _RunnerProcess:
    """A running runner and its events so far; OSError if Skyplane's Python does not run."""

    def __init__(
        self, python: Path, home: Path, request: Mapping[str, Any], environment: Mapping[str, str]
    ) -> None:
        self.regions: list[str] = []
        """Regions where the runner starts machines."""
        self.bytes, self.error = 0, ""
        self.transferring = self.done = False
        self.ended = False
        """Whether no machine of the runner runs any more."""
        with open(home / "log", "ab") as log:
            os.chmod(log.name, 0o600)
            # -I: the folder of the program must not be a place to import from.
            self._process = subprocess.Popen(  # noqa: S603 - a program of this package
                [str(python), "-I", str(RUNNER)],
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert self._process.stdin is not None
        with suppress(OSError):  # it may have ended already
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        """Note events until the runner closes stdout; other lines are skipped."""
        assert self._process.stdout is not None
        with suppress(OSError, ValueError), self._process.stdout as stdout:
            while line := stdout.readline(_LONGEST_LINE):
                with suppress(KeyError, TypeError, ValueError):
                    self._note(json.loads(line))

    def _note(self, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "planned":
                self.regions = sorted(set(map(str, event["regions"])))
            case "transferring":
                self.transferring = True
            case "progress":
                self.bytes = max(int(event["bytes"]), self.bytes)
            case "error":
                self.error = _without_secrets(str(event["message"]))
            case "done":
                self.done = True
            case "deprovisioned":
                self.ended = True

    def runs(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for the end of the output; return whether it is still open."""
        self._reading.join(seconds)
        return self._reading.is_alive()

    def ask_to_stop(self) -> None:
        """Ask the runner to end its machines and itself."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()

    def kill(self) -> int:
        """Kill the runner and all its children; return its exit status."""
        # Also after the runner's own end: its children are in its group, whose ID is taken until
        # the runner is waited for.
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self.ask_to_stop()
        self._reading.join(_LAST_WORDS_SECONDS)
        return self._process.wait()

    def leave(self) -> None:
        """Let the runner finish by itself, even after this process."""
        self.ask_to_stop()
        threading.Thread(target=self._process.wait, daemon=True).start()


def _check_buckets(source: CopyEnd, target: CopyEnd) -> None:
    """Refuse a missing bucket, or a source without bytes: Skyplane would wait for ever."""
    next(iter(target.store.list()), None)
    if not any(info.size_bytes for page in source.store.list() for info in page):
        message = "no object in it has any bytes"
        raise ConfigError("config.empty_source", message, where=source.url)


def _project(source: CopyEnd, target: CopyEnd) -> str:
    """Return the Google Cloud project of the machines; empty if none is named."""
    named = source.access.project or target.access.project
    return named or os.environ.get("GOOGLE_CLOUD_PROJECT", "")


def _private_home() -> Path:
    """Make a private folder for Skyplane's keys, with links to the user's own credentials."""
    home = Path(tempfile.mkdtemp(prefix="larder-skyplane-"))
    for name in _CREDENTIAL_FOLDERS:
        folder = Path.home() / name
        if folder.is_dir():
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).symlink_to(folder)
    return home


def _environment(home: Path, source: CopyEnd, target: CopyEnd) -> dict[str, str]:
    """Return the caller's environment with ``home`` as HOME, and without other Pythons."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(_NOT_PASSED_ON)}
    # A path that begins with ~ is below the user's home.
    kept |= {name: os.path.expanduser(kept[name]) for name in _CREDENTIAL_FILES if name in kept}
    for side in (source, target):
        if side.access.profile:
            kept["AWS_PROFILE"] = side.access.profile
    if not any(side.url.startswith("gs://") for side in (source, target)):
        kept["NO_GCE_CHECK"] = "true"  # without it, looking for credentials takes minutes
    config = {"HOME": str(home), "SKYPLANE_CONFIG": str(home / ".skyplane" / "config")}
    return {**kept, **config, "SKYPLANE_USAGE_STATS_ENABLED": "0"}


def _not_set_up(python: Path, why: str) -> ConfigError:
    return ConfigError(
        "config.missing_package",
        f"Skyplane is not set up: {why}",
        where=str(python),
        hint="run `make skyplane`, or set copy.skyplane.python to the Python that has it",
    )


def _without_secrets(message: str) -> str:
    """Return a message of another program as one short line without possible credentials."""
    for name, value in os.environ.items():
        if len(value) >= 8 and _SECRET_NAME.search(name) and name not in _CREDENTIAL_FILES:
            message = message.replace(value, "***")
    line = printable(" ".join(_SECRET.sub("***", message).split()))
    return line if len(line) <= _LONGEST_MESSAGE else line[: _LONGEST_MESSAGE - 3] + "..."
