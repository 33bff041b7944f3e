"""The supervision of Skyplane's runner, with other programs in its place."""

from __future__ import annotations

import json
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from larder.config.models.copy_config import CopyConfig, Skyplane
from larder.config.urls import Access
from larder.copy.skyplane import adapter
from larder.copy.skyplane.adapter import TransferResult, transfer
from larder.copy.skyplane.engine_choice import (
    CopyEnd,
    EngineChoice,
    choose_engine,
    skyplane_available,
)
from larder.copy.skyplane.runner import TransferRunner
from larder.errors import ConfigError, FatalError, StoreError
from larder.progress import NullProgress, StageTimes
from larder.store import open_store
from larder.store.base import BucketPrefix, Features, ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from tests.support.errors import larder_error
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
        self.put("a", b"a")

    @property
    def features(self) -> Features:
        return replace(super().features, place=self.place)


class Missing(Bucket):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        raise StoreError("store.missing", "no such bucket", where="gs://bucket/")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where the runner's place is taken, and where that notes what it was asked."""
    monkeypatch.setenv("FAKE_FOLDER", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(adapter, "RUNNER", tmp_path / "fake.py")
    monkeypatch.setattr(adapter, "_GRACE_SECONDS", 0.2)
    return tmp_path


def run(
    here: Path,
    body: str,
    *,
    progress: Any = None,
    access: Access | None = None,
    source: Store | None = None,
    target: Store | None = None,
    keys: tuple[str, ...] = ("a",),
    python: str = sys.executable,
    timeout_seconds: float = 100.0,
) -> TransferResult:
    """Transfer with a program in place of the runner."""
    (here / "fake.py").write_text(PRELUDE + textwrap.dedent(body))
    return transfer(
        CopyEnd("s3://bucket/from", source or Bucket("s3"), access or Access()),
        CopyEnd("gs://bucket/to/", target or Bucket("gs"), Access(project="p")),
        keys,
        limits=Skyplane(python=python).model_copy(update={"timeout_seconds": timeout_seconds}),
        total_bytes=10**9,
        progress=progress or NullProgress(),
    )


def asked(here: Path, name: str = "transfer") -> dict[str, Any]:
    """The only request of that kind, with the environment of the process that got it."""
    (line,) = (here / name).read_text().splitlines()
    request: dict[str, Any] = json.loads(line)
    return request


def homes(here: Path) -> list[Path]:
    return list(here.glob("larder-skyplane-*"))


class Acting(NullProgress):
    """Calls something at the first progress."""

    def __init__(self, act: Callable[[], object]) -> None:
        self.act = act

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        self.act()


DONE = BEGUN + 'say("done"); say("deprovisioned")'


def test_a_transfer_is_reported_with_its_bytes(here):
    times = StageTimes()
    ended = run(here, DONE, progress=times)
    assert (ended.done, ended.sent) == (True, True)
    assert ended.message.startswith("Skyplane wrote 1.0 kB in ")
    assert times.stages()["skyplane"]["bytes"] == 1000
    assert homes(here) == []
    assert not (here / "sweep").exists()


def test_the_runner_gets_a_private_home_and_no_other_python(here, monkeypatch, tmp_path):
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
    assert run(here, textwrap.dedent(body) + DONE, access=access, keys=("a", "b\n")).done
    request = asked(here)
    environment = request["environment"]
    assert environment["HOME"].startswith(str(tmp_path / "larder-skyplane-"))
    assert environment["SKYPLANE_CONFIG"] == f"{environment['HOME']}/.skyplane/config"
    assert environment["SKYPLANE_USAGE_STATS_ENABLED"] == "0"
    assert environment["AWS_PROFILE"] == "team"
    assert environment["GOOGLE_APPLICATION_CREDENTIALS"] == f"{home}/key.json"
    assert "PYTHONPATH" not in environment
    assert "SKYPLANE_DOCKER_IMAGE" not in environment
    assert (request["source"], request["target"]) == ("s3://bucket/from/", "gs://bucket/to/")
    assert (request["project"], request["requester_pays"]) == ("p", True)


def test_a_runner_that_hangs_is_killed_and_its_machines_ended(here):
    # Starting it may take longer than the limit.
    patient = Acting(lambda: wait_until((here / "begun").exists))
    body = '(here / "begun").touch(); hang()'
    ended = run(here, BEGUN + body, timeout_seconds=0.1, progress=patient)
    assert (ended.done, ended.sent) == (False, True)
    assert "it took longer than copy.skyplane.timeout_seconds, 0.1" in ended.message
    assert not is_running(asked(here)["pid"])
    swept = asked(here, "sweep")
    assert swept["client"] == asked(here)["client"]
    assert swept["regions"] == ["aws:us-east-1", "gcp:us-central1-a"]


def test_a_runner_that_is_too_slow_is_asked_to_end_its_machines(here, monkeypatch):
    monkeypatch.setattr(adapter, "_GRACE_SECONDS", 60.0)
    body = """
    sys.stdin.read()
    say("error", message="stopped")
    say("deprovisioned")
    """
    ended = run(here, BEGUN + textwrap.dedent(body), timeout_seconds=0.2)
    assert not ended.done
    assert "it took longer than" in ended.message
    assert not (here / "sweep").exists()


def log_in(message: str) -> Path:
    return Path(message.rpartition("its output is in ")[2])


@pytest.mark.parametrize("begun", ["", BEGUN])  # it may have made keys before any machine
def test_a_runner_that_crashes_is_swept_and_reported_with_its_status_and_log(here, begun):
    ended = run(here, begun + "print('the last words', file=sys.stderr); os._exit(7)")
    assert (ended.done, ended.sent) == (False, bool(begun))
    assert "it ended with status 7, without a word" in ended.message
    assert bool(asked(here, "sweep")["regions"]) == bool(begun)
    log = log_in(ended.message)
    assert log.read_text() == "the last words\n"
    assert log.stat().st_mode & 0o77 == 0
    assert [path.name for path in log.parent.iterdir()] == ["log"]


def test_a_runner_that_ignores_sigterm_and_its_children_are_killed(here):
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child := os.fork():
        (here / "child").write_text(str(child))
        say("progress", bytes=2000)
    hang()
    """

    def stop() -> None:
        wait_until((here / "child").exists)  # what the runner has said by now was not read yet
        raise FatalError("run.interrupted", "stopped")

    with pytest.raises(FatalError, match="stopped"):
        run(here, BEGUN + textwrap.dedent(body), progress=Acting(stop))
    wait_until(lambda: not is_running(int((here / "child").read_text())))
    assert not is_running(asked(here)["pid"])
    wait_until(lambda: homes(here) == [])  # by the second process, in the background
    assert asked(here, "sweep")["regions"] == ["aws:us-east-1", "gcp:us-central1-a"]


def test_an_interruption_before_any_machine_leaves_nothing(here):
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(here, "hang()", progress=Acting(interrupt))
    wait_until(lambda: homes(here) == [])


def test_machines_that_could_not_be_ended_are_named(here, monkeypatch):
    denied = """say("error", message="access denied")\n    sys.exit()"""
    prelude = PRELUDE.replace('say("deprovisioned")', denied)
    monkeypatch.setattr(sys.modules[__name__], "PRELUDE", prelude)
    ended = run(here, BEGUN + 'say("done")')
    assert ended.done
    assert "ending its machines failed (access denied): look in aws:us-east-1" in ended.message
    assert f"skyplaneclientid {asked(here)['client']}" in ended.message
    assert log_in(ended.message).is_file()


def test_no_secret_of_the_runner_is_shown(here, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "short secret")
    body = """
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    print("AKIAIOSFODNN7EXAMPLE", secret, file=sys.stderr)
    say("error", message="denied AKIAIOSFODNN7EXAMPLE " + secret + " short secret "
        "https://user:pass@host/?X-Amz-Signature=abcdef&x=1 \\x1b[31m\\n"
        "-----BEGIN PRIVATE KEY-----\\nMIIE")
    """
    ended = run(here, textwrap.dedent(body))
    said = ": denied *** *** *** https://***host/?***&x=1 \\x1b[31m ***; its output is in "
    assert said in ended.message


def test_a_bucket_that_cannot_be_listed_is_a_failure_before_anything_starts(here):
    ended = run(here, DONE, target=Missing("gs"))
    assert (ended.done, ended.sent) == (False, False)
    assert ended.message == "Skyplane was not started: gs://bucket/: no such bucket"
    assert not (here / "transfer").exists()


def test_a_copy_that_skyplane_cannot_make_is_refused(here):
    with pytest.raises(ConfigError, match="the source is at http://elsewhere"):
        run(here, DONE, source=Bucket("s3", "http://elsewhere"))


def test_without_its_environment_the_error_says_what_to_run(here):
    assert not skyplane_available(Skyplane(python=str(here / "none")))
    (here / "broken").write_text("not a program")
    for name in ("none", "broken"):
        with larder_error("config.missing_package") as caught:
            run(here, DONE, python=str(here / name))
        assert "run `make skyplane`" in str(caught.value)
    assert homes(here) == []


S3 = BucketPrefix("s3", "", "bucket", "x/")
GCS = BucketPrefix("gs", "", "bucket", "x/")
LOCAL = BucketPrefix("file", "", "", "/data/")
ELSEWHERE = replace(S3, server="https://minio.example")
LIMIT = 100 * 10**9


def side(place: BucketPrefix | None, access: Access) -> CopyEnd:
    store: Any = SimpleNamespace(features=SimpleNamespace(place=place))
    return CopyEnd("", store, access)


def choose(
    source: BucketPrefix | None,
    target: BucketPrefix | None,
    *,
    engine: str = "auto",
    total_bytes: int = LIMIT,
    available: bool = True,
    accesses: tuple[Access, Access] = (Access(), Access()),
) -> EngineChoice:
    limits = CopyConfig.model_validate({"engine": engine, "skyplane": {"min_bytes": LIMIT}})
    sides = (side(source, accesses[0]), side(target, accesses[1]))
    return choose_engine(*sides, limits=limits, total_bytes=total_bytes, available=available)


@pytest.mark.parametrize(("source", "target"), [(S3, GCS), (GCS, S3)])
def test_between_providers_skyplane_copies_much(source, target):
    assert choose(source, target) == EngineChoice("skyplane", "100 GB between two providers")


IGNORED = [
    ((Access(anonymous=True), Access()), "the source is anonymous"),
    ((Access(role="arn:aws:iam::1:role/x"), Access()), "the source has a role"),
    ((Access(), Access(block="gcp-credentials/x")), "the storage has a role or a block"),
    ((Access(), Access(kms_key="k")), "the storage has a kms_key"),
    ((Access(), Access(requester_pays=True)), "the storage has requester_pays"),
]
PROFILES = (Access(profile="a"), Access(profile="b"))


@pytest.mark.parametrize(
    ("source", "target", "options", "reason"),
    [
        (S3, S3, {}, "both sides are at one provider"),
        (GCS, GCS, {}, "both sides are at one provider"),
        (S3, GCS, {"total_bytes": LIMIT - 10**9}, "99.0 GB is less than copy.skyplane.min_bytes"),
        (S3, GCS, {"available": False}, "`make skyplane` does that"),
        (S3, GCS, {"engine": "native"}, "copy.engine is native"),
        (S3, LOCAL, {}, "the storage is not a bucket of S3 or GCS"),
        (None, GCS, {}, "the source is not a bucket of S3 or GCS"),
        (ELSEWHERE, GCS, {}, "the source is at https://minio.example"),
        (LOCAL, S3, {"engine": "skyplane"}, "Skyplane cannot make this copy: the source is"),
        (S3, S3, {"engine": "skyplane", "accesses": PROFILES}, "have different profiles"),
        *(
            (S3, GCS, {"engine": engine, "accesses": accesses}, reason)
            for engine in ("auto", "skyplane")
            for accesses, reason in IGNORED
        ),
    ],
)
def test_everything_else_is_native(source, target, options, reason):
    choice = choose(source, target, **options)
    assert choice.engine == "native"
    assert reason in choice.reason


def test_skyplane_by_name_needs_neither_two_providers_nor_many_bytes():
    chosen = choose(S3, S3, engine="skyplane", total_bytes=1, available=False)
    assert chosen == EngineChoice("skyplane", "copy.engine is skyplane")


@pytest.mark.parametrize("keys", [[], ["A", "a", "b b", "c//d", "z\n", "é", "\U0001f600"]])
def test_of_many_objects_only_the_wanted_are_taken_that_have_content_and_a_place(tmp_path, keys):
    path = tmp_path / "keys"
    left = ["", "/x", "b/", "empty"]  # to the native engine
    path.write_text("".join(json.dumps(key) + "\n" for key in sorted([*keys, *left])))
    others = ["0", "aa", "b", "zz", "ê", "～", "\U0001f601"]
    take = TransferRunner({"keys": str(path)}, print)._filter("p/")
    found = [
        key
        for key in sorted({*keys[1:], *others, *left}, key=str.encode)
        if take(SimpleNamespace(key=f"p/{key}", size=key not in ("", "b/", "empty")))
    ]
    assert found == keys[1:]


@pytest.mark.parametrize(("name", "noticed"), [("prefetch", True), ("paramiko_loop", False)])
def test_only_errors_of_threads_that_skyplane_waits_for_end_the_transfer(
    name, noticed, monkeypatch
):
    runner = TransferRunner({}, print)
    logged: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", runner._lose)
    monkeypatch.setattr(threading, "__excepthook__", logged.append)

    def fail() -> None:
        raise ValueError("lost")

    fail.__name__ = name
    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert [str(error) for error in runner._lost] == (["lost"] if noticed else [])
    assert len(logged) == (not noticed)
