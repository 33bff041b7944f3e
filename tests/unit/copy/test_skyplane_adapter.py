"""The supervision of Skyplane's runner, with other programs in its place."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from larder.config.models.copying import Skyplane
from larder.config.urls import Access
from larder.copy.skyplane import adapter
from larder.copy.skyplane.adapter import Transfer, transfer
from larder.copy.skyplane.choice import Side, skyplane_available
from larder.errors import ConfigError, FatalError, StoreError
from larder.progress import NullProgress, StageTimes
from larder.store import open_store
from larder.store.base import BucketPrefix, Features, ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from tests.support.processes import is_running, wait_until

PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path

def say(event, **fields):
    print(json.dumps({"event": event, **fields}), flush=True)

def hang():
    while True:
        time.sleep(60)

request = json.loads(sys.stdin.readline())
here = Path(os.environ["FAKE_FOLDER"])
with open(here / ("sweep" if request["sweep"] else "transfer"), "a") as file:
    file.write(json.dumps({**request, "pid": os.getpid(), "environment": dict(os.environ)}) + "\\n")
REGIONS = ["gcp:us-central1-a", "aws:us-east-1", "aws:us-east-1"]
if request["sweep"]:
    say("deprovisioned")
    if request["remove_home"]:
        import shutil
        shutil.rmtree(Path.home())
    sys.exit()
"""
BEGUN = """
say("planned", regions=REGIONS)
say("transferring")
say("progress", bytes=1000)
"""


class Bucket(DelegatingStore):
    """A store in memory as if it were a bucket."""

    def __init__(self, provider: str, server: str = "") -> None:
        super().__init__(open_store(f"memory://skyplane-{provider}"))
        self.place = BucketPrefix(provider, server, "bucket", "")

    @property
    def features(self) -> Features:
        return replace(super().features, place=self.place)


class Missing(Bucket):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        raise StoreError("store.missing", "no such bucket", where="gs://bucket/")


class Lab:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.source, self.target = Bucket("s3"), Bucket("gs")
        self.source.put("a", b"a")
        monkeypatch.setenv("FAKE_FOLDER", str(folder))
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        monkeypatch.setattr(adapter, "RUNNER", folder / "fake.py")
        monkeypatch.setattr(adapter, "_GRACE_SECONDS", 0.2)

    def fake(self, body: str) -> None:
        (self.folder / "fake.py").write_text(PRELUDE + textwrap.dedent(body))

    def run(
        self,
        body: str,
        *,
        progress: Any = None,
        access: Access | None = None,
        target: Store | None = None,
        keys: tuple[str, ...] = ("a",),
        python: str = sys.executable,
        timeout_seconds: float = 100.0,
    ) -> Transfer:
        self.fake(body)
        limits = Skyplane(python=python).model_copy(update={"timeout_seconds": timeout_seconds})
        return transfer(
            Side("s3://bucket/from", self.source, access or Access()),
            Side("gs://bucket/to/", target or self.target, Access(project="p")),
            keys,
            limits=limits,
            total_bytes=10**9,
            progress=progress or NullProgress(),
        )

    def asked(self, name: str = "transfer") -> dict[str, Any]:
        """The only request of that kind, with the environment of the process that got it."""
        (line,) = (self.folder / name).read_text().splitlines()
        request: dict[str, Any] = json.loads(line)
        return request

    def homes(self) -> list[Path]:
        return sorted(self.folder.glob("larder-skyplane-*"))

    def swept(self) -> bool:
        return (self.folder / "sweep").exists()


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


DONE = BEGUN + 'say("done"); say("deprovisioned")'


def test_a_transfer_is_reported_with_its_bytes(lab):
    times = StageTimes()
    ended = lab.run(DONE, progress=times)
    assert (ended.done, ended.sent) == (True, True)
    assert ended.message.startswith("Skyplane wrote 1.0 kB in ")
    assert times.stages()["skyplane"]["bytes"] == 1000
    assert lab.homes() == []
    assert not lab.swept()


def test_the_runner_gets_a_private_home_and_no_other_python(lab, monkeypatch, tmp_path):
    home = tmp_path / "user"
    (home / ".aws").mkdir(parents=True)
    (home / ".aws/config").write_text("[default]\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")
    monkeypatch.setenv("SKYPLANE_DOCKER_IMAGE", "of somebody else")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "~/key.json")
    body = """
    assert (Path.home() / ".aws/config").read_text() == "[default]\\n"
    assert Path.home().stat().st_mode & 0o77 == 0
    assert Path(request["keys"]).read_text() == '"a"\\n"b\\\\n"\\n'
    """
    access = Access(profile="team", requester_pays=True)
    assert lab.run(textwrap.dedent(body) + DONE, access=access, keys=("a", "b\n")).done
    asked = lab.asked()
    environment = asked["environment"]
    assert environment["HOME"].startswith(str(tmp_path / "larder-skyplane-"))
    assert environment["SKYPLANE_CONFIG"] == f"{environment['HOME']}/.skyplane/config"
    assert environment["SKYPLANE_USAGE_STATS_ENABLED"] == "0"
    assert environment["AWS_PROFILE"] == "team"
    assert environment["GOOGLE_APPLICATION_CREDENTIALS"] == f"{home}/key.json"
    assert "PYTHONPATH" not in environment
    assert "SKYPLANE_DOCKER_IMAGE" not in environment
    assert (asked["source"], asked["target"]) == ("s3://bucket/from/", "gs://bucket/to/")
    assert (asked["project"], asked["requester_pays"]) == ("p", True)


def test_a_runner_that_hangs_is_killed_and_its_machines_ended(lab):
    class Patient(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            wait_until((lab.folder / "begun").exists)  # starting it may take longer than the limit

    body = '(here / "begun").touch(); hang()'
    ended = lab.run(BEGUN + body, timeout_seconds=0.1, progress=Patient())
    assert (ended.done, ended.sent) == (False, True)
    assert "it took longer than copy.skyplane.timeout_seconds, 0.1" in ended.message
    assert not is_running(lab.asked()["pid"])
    swept = lab.asked("sweep")
    assert swept["client"] == lab.asked()["client"]
    assert swept["regions"] == ["aws:us-east-1", "gcp:us-central1-a"]


def test_a_runner_that_is_too_slow_is_asked_to_end_its_machines(lab, monkeypatch):
    monkeypatch.setattr(adapter, "_GRACE_SECONDS", 60.0)
    body = """
    sys.stdin.read()
    say("error", message="stopped")
    say("deprovisioned")
    """
    ended = lab.run(BEGUN + textwrap.dedent(body), timeout_seconds=0.2)
    assert not ended.done
    assert "it took longer than" in ended.message
    assert not lab.swept()


def test_whatever_has_not_said_that_its_machines_ended_is_swept(lab):
    ended = lab.run("os._exit(1)")  # it may have made keys before any machine
    assert (ended.done, ended.sent) == (False, False)
    assert lab.asked("sweep")["regions"] == []


def log_in(message: str) -> Path:
    return Path(message.rpartition("its output is in ")[2])


def test_a_runner_that_crashes_is_reported_with_its_status_and_log(lab):
    ended = lab.run(BEGUN + "print('the last words', file=sys.stderr); os._exit(7)")
    assert not ended.done
    assert "it ended with status 7, without a word" in ended.message
    assert lab.swept()
    log = log_in(ended.message)
    assert log.read_text() == "the last words\n"
    assert log.stat().st_mode & 0o77 == 0
    assert [path.name for path in log.parent.iterdir()] == ["log"]


def test_a_runner_that_ignores_sigterm_and_its_children_are_killed(lab):
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child := os.fork():
        (here / "child").write_text(str(child))
        say("progress", bytes=2000)
    hang()
    """

    class Stopped(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            # What the runner has said by now was not read yet.
            wait_until((lab.folder / "child").exists)
            raise FatalError("run.interrupted", "stopped")

    with pytest.raises(FatalError, match="stopped"):
        lab.run(BEGUN + textwrap.dedent(body), progress=Stopped())
    wait_until(lambda: not is_running(int((lab.folder / "child").read_text())))
    assert not is_running(lab.asked()["pid"])
    wait_until(lab.swept)
    assert lab.asked("sweep")["regions"] == ["aws:us-east-1", "gcp:us-central1-a"]
    wait_until(lambda: lab.homes() == [])  # by the second process, in the background


def test_an_interruption_before_any_machine_leaves_nothing(lab):
    class Stopped(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run("hang()", progress=Stopped())
    wait_until(lambda: lab.homes() == [])


def test_machines_that_could_not_be_ended_are_named(lab, monkeypatch):
    denied = """say("error", message="access denied")\n    sys.exit()"""
    prelude = PRELUDE.replace('say("deprovisioned")', denied)
    monkeypatch.setattr(sys.modules[__name__], "PRELUDE", prelude)
    ended = lab.run(BEGUN + 'say("done")')
    assert ended.done
    assert "ending its machines failed (access denied): look in aws:us-east-1" in ended.message
    assert f"skyplaneclientid {lab.asked()['client']}" in ended.message
    assert log_in(ended.message).is_file()


def test_no_secret_of_the_runner_is_shown(lab, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "short secret")
    body = """
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    print("AKIAIOSFODNN7EXAMPLE", secret, file=sys.stderr)
    say("error", message="denied AKIAIOSFODNN7EXAMPLE " + secret + " short secret "
        "https://user:pass@host/?X-Amz-Signature=abcdef&x=1 \\x1b[31m\\n"
        "-----BEGIN PRIVATE KEY-----\\nMIIE")
    """
    ended = lab.run(textwrap.dedent(body))
    said = ": denied *** *** *** https://***host/?***&x=1 \\x1b[31m ***; its output is in "
    assert said in ended.message


def test_a_bucket_that_cannot_be_listed_is_a_failure_before_anything_starts(lab):
    ended = lab.run(DONE, target=Missing("gs"))
    assert (ended.done, ended.sent) == (False, False)
    assert ended.message == "Skyplane was not started: gs://bucket/: no such bucket"
    assert not (lab.folder / "transfer").exists()


def test_a_copy_that_skyplane_cannot_make_is_refused(lab):
    lab.source.place = replace(lab.source.place, server="http://elsewhere")
    with pytest.raises(ConfigError, match="the source is at http://elsewhere"):
        lab.run(DONE)


def test_without_its_environment_the_error_says_what_to_run(lab):
    missing = str(lab.folder / "no" / "python")
    assert not skyplane_available(Skyplane(python=missing))
    with pytest.raises(ConfigError, match="run `make skyplane`") as caught:
        lab.run(DONE, python=missing)
    assert caught.value.code == "config.missing_package"
    broken = lab.folder / "broken"
    broken.write_text("not a program")
    with pytest.raises(ConfigError, match="run `make skyplane`"):
        lab.run(DONE, python=str(broken))
    assert lab.homes() == []
