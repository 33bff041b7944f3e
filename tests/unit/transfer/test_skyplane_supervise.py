"""The supervision of Skyplane's runner, with other programs in its place."""

from __future__ import annotations

import json
import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from larder.config.access import Access
from larder.config.copying import Copy as CopyConfig
from larder.errors import ConfigError, FatalError, StoreError
from larder.progress import NullProgress, StageTimes
from larder.store import open_store
from larder.store.base import Features, ObjectInfo, Place, Store
from larder.store.delegate import DelegatingStore
from larder.transfer.engines import skyplane_supervise
from larder.transfer.engines.skyplane import SkyplanePlace, run_skyplane, skyplane_available
from larder.transfer.engines.skyplane_supervise import SkyplaneLimits, SkyplaneReport

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
MACHINES = [["aws:us-east-1", "m5.8xlarge"], ["gcp:us-central1-a", "n2-standard-16"]]
if request["sweep"]:
    say("deprovisioned")
    if request["remove_home"]:
        import shutil
        shutil.rmtree(Path.home())
    sys.exit()
say("started")
"""
BEGUN = """
say("planned", machines=MACHINES)
say("provisioning")
say("transferring")
say("progress", chunks=3, written=3, bytes=1000)
"""


class Bucket(DelegatingStore):
    """A store in memory as if it were a bucket."""

    def __init__(self, provider: str, server: str = "") -> None:
        super().__init__(open_store(f"memory://skyplane-{provider}"))
        self.place = Place(provider, server, "bucket", "")

    @property
    def features(self) -> Features:
        return replace(super().features, place=self.place)


class Missing(Bucket):
    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        raise StoreError("store.missing", "no such bucket", where="gs://bucket/")


class Lab:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.source, self.target = Bucket("s3"), Bucket("gs")
        self.source.put("a", b"a")
        monkeypatch.setenv("FAKE_FOLDER", str(folder))
        monkeypatch.setattr("tempfile.tempdir", str(folder))
        monkeypatch.setattr(skyplane_supervise, "RUNNER", folder / "fake.py")

    def fake(self, body: str) -> None:
        (self.folder / "fake.py").write_text(PRELUDE + textwrap.dedent(body))

    def run(
        self,
        body: str,
        *,
        progress: Any = None,
        access: Access | None = None,
        target: Store | None = None,
        egress: float | None = 0.09,
        total_bytes: int = 10**9,
        keys: list[str] | None = None,
        **limits: Any,
    ) -> SkyplaneReport:
        self.fake(body)
        chosen = {"timeout_seconds": 100.0, "grace_seconds": 1.0, **limits}
        return run_skyplane(
            SkyplanePlace("s3://bucket/from", self.source, "us-east-1", access or Access()),
            SkyplanePlace(
                "gs://bucket/to/", target or self.target, "us-central1", Access(project="p")
            ),
            limits=SkyplaneLimits(python=Path(sys.executable), **chosen),
            total_bytes=total_bytes,
            egress_usd_per_gb=egress,
            keys=keys,
            progress=progress,
            say=self.said.append,
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


def wait_until(true: Callable[[], bool]) -> None:
    """Poll for a minute at most."""
    for _ in range(1200):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not become true")


def is_running(pid: int) -> bool:
    """Whether a process runs; one that nobody has waited for has ended."""
    try:
        os.kill(pid, 0)
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


DONE = BEGUN + 'say("done", bytes=1000); say("deprovisioned")'


def test_a_transfer_is_reported_with_its_bytes_and_costs(lab: Lab) -> None:
    times = StageTimes()
    report = lab.run(DONE, progress=times)
    assert (report.status, report.bytes, report.log) == ("done", 1000, None)
    assert report.message.startswith("Skyplane wrote 1.0 kB in ")
    assert report.vm_hours == pytest.approx(2 / 60)  # two machines for the least that is charged
    assert report.usd == pytest.approx((2.60 + 1.40) / 60 + 0.09 * 1000 / 1e9)
    shown = times.stages()["skyplane"]
    assert (shown["objects"], shown["bytes"]) == (3, 1000)
    assert lab.said[0] == (
        "Skyplane starts m5.8xlarge in aws:us-east-1, n2-standard-16 in gcp:us-central1-a"
    )
    assert lab.homes() == []
    assert not lab.swept()


def test_the_runner_gets_a_private_home_and_no_other_python(
    lab: Lab, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
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
    assert lab.run(textwrap.dedent(body) + DONE, access=access, keys=["a", "b\n"]).status == "done"
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
    assert asked["expected_regions"] == ["us-east-1", "us-central1"]


def test_every_run_has_its_own_client_id(lab: Lab) -> None:
    lab.run(DONE)
    first = lab.asked()["client"]
    (lab.folder / "transfer").unlink()
    lab.run(DONE)
    assert first != lab.asked()["client"]


def test_a_runner_that_hangs_is_killed_and_its_machines_ended(lab: Lab) -> None:
    report = lab.run(BEGUN + "hang()", stall_seconds=0.1, grace_seconds=0.2)
    assert (report.status, report.bytes) == ("failed", 1000)
    assert "it was killed: no progress for 0.1 s while progress" in report.message
    assert not is_running(lab.asked()["pid"])
    swept = lab.asked("sweep")
    assert swept["client"] == lab.asked()["client"]
    assert swept["regions"] == ["aws:us-east-1", "gcp:us-central1-a"]
    assert report.vm_hours > 0


def test_a_runner_that_is_too_slow_is_killed(lab: Lab) -> None:
    body = """
    while True:
        say("progress", chunks=1, written=1, bytes=1)
        time.sleep(0.01)
    """
    report = lab.run(BEGUN + textwrap.dedent(body), timeout_seconds=0.2, grace_seconds=0.2)
    assert report.status == "failed"
    assert "it was killed after" in report.message
    assert report.bytes == 1000  # never fewer than before
    assert lab.swept()


def test_a_runner_that_hangs_before_it_starts_machines_needs_no_second_process(lab: Lab) -> None:
    report = lab.run("hang()", stall_seconds=0.1, grace_seconds=0.2)
    assert (report.status, report.vm_hours, report.usd) == ("failed", 0, 0)
    assert not lab.swept()


def test_keys_that_a_runner_made_are_removed_by_the_second_process(lab: Lab) -> None:
    body = """
    folder = Path.home() / ".skyplane/keys/gcp/project"
    folder.mkdir(parents=True)
    (folder / "service_account_key.json").write_text("{}")
    """
    report = lab.run(textwrap.dedent(body) + "os._exit(1)")  # before any machine
    assert report.status == "failed"
    assert report.vm_hours == 0
    assert lab.asked("sweep")["regions"] == []


def test_a_runner_that_crashes_is_reported_with_its_status_and_log(lab: Lab) -> None:
    report = lab.run(BEGUN + "print('the last words', file=sys.stderr); os._exit(7)")
    assert report.status == "failed"
    assert "it ended with status 7, without a word" in report.message
    assert lab.swept()
    assert report.log is not None
    assert report.log.read_text() == "the last words\n"
    assert report.log.stat().st_mode & 0o77 == 0
    assert [path.name for path in report.log.parent.iterdir()] == ["log"]


def test_an_error_of_the_runner_is_reported(lab: Lab) -> None:
    report = lab.run(BEGUN + 'say("error", message="X: no quota"); say("deprovisioned")')
    assert report.status == "failed"
    assert report.message.endswith(f": X: no quota; its output is in {report.log}")
    assert not lab.swept()


def test_garbage_on_stdout_is_ignored(lab: Lab) -> None:
    body = r"""
    sys.stdout.buffer.write(b"\xff\xfe\x00garbage\n[1, 2]\n{}\n{\"event\": 5}\n\n")
    sys.stdout.buffer.write(b"{\"event\": \"progress\"}\n")
    sys.stdout.buffer.write(b"{\"event\": \"planned\", \"machines\": 1}\n")
    sys.stdout.buffer.write(b"x" * (3 << 20) + b"\n")
    sys.stdout.flush()
    """
    report = lab.run(textwrap.dedent(body) + DONE)
    assert (report.status, report.bytes) == ("done", 1000)


def test_a_runner_that_ignores_sigterm_and_its_children_are_killed(lab: Lab) -> None:
    body = """
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if child := os.fork():
        (here / "child").write_text(str(child))
        say("progress", chunks=1, written=1, bytes=2000)
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
    wait_until(lambda: lab.homes() == [])  # by the second process, in the background
    assert lab.said[-1] == "stopped; Skyplane's machines are ended in the background"


def test_an_interruption_before_any_machine_leaves_nothing(lab: Lab) -> None:
    class Stopped(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        lab.run("hang()", progress=Stopped())
    assert lab.homes() == []
    assert not lab.swept()


def test_machines_that_could_not_be_ended_are_named(lab: Lab) -> None:
    body = DONE.replace('say("deprovisioned")', "")
    sweep = """say("error", message="access denied")\n    sys.exit()\n    say("deprovisioned")"""
    lab.run(DONE)
    (lab.folder / "transfer").unlink()
    lab.fake(body)
    script = (lab.folder / "fake.py").read_text().replace('say("deprovisioned")', sweep)
    lab.fake = lambda _: None  # type: ignore[method-assign]
    (lab.folder / "fake.py").write_text(script)
    report = lab.run("")
    assert report.status == "done"
    assert "ending its machines failed (access denied): look in aws:us-east-1" in report.message
    assert f"skyplaneclientid {lab.asked()['client']}" in report.message
    assert report.log is not None


def test_no_secret_of_the_runner_is_shown(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "short secret")
    body = """
    secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    print("AKIAIOSFODNN7EXAMPLE", secret, file=sys.stderr)
    say("error", message="denied AKIAIOSFODNN7EXAMPLE " + secret + " short secret "
        "https://user:pass@host/?X-Amz-Signature=abcdef&x=1 \\x1b[31m\\n"
        "-----BEGIN PRIVATE KEY-----\\nMIIE")
    """
    report = lab.run(textwrap.dedent(body))
    said = ": denied *** *** *** https://***host/?***&x=1 \\x1b[31m ***; its output is in "
    assert said in report.message
    assert not any("AKIA" in line for line in lab.said)


def test_a_bucket_that_cannot_be_listed_is_a_failure_before_anything_starts(lab: Lab) -> None:
    report = lab.run(DONE, target=Missing("gs"))
    assert report.status == "failed"
    assert report.message == "Skyplane was not started: gs://bucket/: no such bucket"
    assert not (lab.folder / "transfer").exists()


def test_a_source_without_bytes_is_a_failure_before_anything_starts(lab: Lab) -> None:
    lab.source.delete("a")
    lab.source.put("_SUCCESS", b"")
    assert "no object in it has any bytes" in lab.run(DONE).message
    assert not (lab.folder / "transfer").exists()


@pytest.mark.parametrize(
    ("limit", "egress", "said"),
    [
        (1.0, 0.09, r"may cost up to \$9\d\.\d\d \(egress \$90\.00"),
        (90.4, 0.09, "lower copy.skyplane.timeout_seconds"),
        (90.5, None, "the price of this egress is unknown"),
    ],
)
def test_a_transfer_that_may_cost_too_much_is_refused(
    lab: Lab, limit: float, egress: float | None, said: str
) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        lab.run(DONE, egress=egress, total_bytes=10**12, max_cost_usd=limit)
    assert caught.value.code == "config.cost_limit"
    assert not (lab.folder / "transfer").exists()


def test_the_limit_holds_the_machines_until_the_time_limit(lab: Lab) -> None:
    assert lab.run(DONE, total_bytes=10**12, max_cost_usd=91.0).status == "done"


def test_the_limits_are_those_of_the_cluster_file() -> None:
    assert SkyplaneLimits.of(CopyConfig()) == SkyplaneLimits()  # the same defaults
    given = {"max_instances": 2, "timeout_seconds": 5, "stall_seconds": 4, "python": "~/p"}
    limits = SkyplaneLimits.of(CopyConfig.model_validate({"skyplane": given, "max_cost_usd": 3}))
    assert (limits.max_instances, limits.timeout_seconds, limits.stall_seconds) == (2, 5, 4)
    assert limits.max_cost_usd == 3
    assert limits.interpreter == Path.home() / "p"


def test_a_copy_that_skyplane_cannot_make_is_refused(lab: Lab) -> None:
    lab.source.place = replace(lab.source.place, server="http://elsewhere")
    with pytest.raises(ConfigError, match="the source is at http://elsewhere"):
        lab.run(DONE)


def test_without_its_environment_the_error_says_what_to_run(lab: Lab) -> None:
    missing = lab.folder / "no" / "python"
    assert not skyplane_available(missing)
    with pytest.raises(ConfigError, match="run `make skyplane`") as caught:
        run_skyplane(
            SkyplanePlace("s3://bucket/", lab.source),
            SkyplanePlace("gs://bucket/", lab.target),
            limits=SkyplaneLimits(python=missing),
            total_bytes=1,
            egress_usd_per_gb=0.0,
        )
    assert caught.value.code == "config.missing_package"
    broken = lab.folder / "broken"
    broken.write_text("not a program")
    with pytest.raises(ConfigError, match="run `make skyplane`"):
        run_skyplane(
            SkyplanePlace("s3://bucket/", lab.source, access=Access(project="p")),
            SkyplanePlace("gs://bucket/", lab.target),
            limits=SkyplaneLimits(python=broken),
            total_bytes=1,
            egress_usd_per_gb=0.0,
        )
    assert lab.homes() == []
