"""Skyplane's own client, planner and two of its gateways, on this machine, against a local S3."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from required import need_system

from larder.budgets import ByteBudget
from larder.config.models.copy_config import Skyplane
from larder.config.urls import Access
from larder.copy.allowance import CopyLimits
from larder.copy.object import copy_object
from larder.copy.proof import ObjectCopy, adopt
from larder.copy.skyplane import adapter
from larder.copy.skyplane.adapter import TransferResult, transfer
from larder.copy.skyplane.engine_choice import CopyEnd, skyplane_python
from larder.errors import FatalError
from larder.progress import NullProgress, Progress
from larder.store import open_store
from larder.store.base import BucketPrefix, Features, ObjectInfo, Store
from larder.store.delegate import DelegatingStore
from larder.units import format_bytes
from tests.support.processes import is_running, wait_until
from tests.support.servers import S3Server, moto_s3

ROOT = Path(__file__).parents[2]
LOCAL = ROOT / "tests" / "support" / "skyplane_local.py"
LARGE_BYTES = 23 * 1024**2  # uploaded in five parts
NOT_SET_UP = "Skyplane is not set up (`make skyplane-test` does that; it needs Python 3.11)"


@pytest.fixture(scope="module")
def python() -> Path:
    path = skyplane_python(Skyplane())
    need_system((path.parents[1] / "gateway").is_file(), NOT_SET_UP)
    return path


@pytest.fixture(scope="module")
def server(python: Path) -> Iterator[S3Server]:
    """A moto of its own: it also has the instances of the local EC2."""
    del python
    with moto_s3() as running:
        client = running.client()
        for name, region in (("source", "us-east-1"), ("target", "eu-west-1")):
            place = {} if region == "us-east-1" else {"LocationConstraint": region}
            options: dict[str, Any] = {"CreateBucketConfiguration": place} if place else {}
            client.create_bucket(Bucket=name, **options)
        client.close()
        yield running


class AsAws(DelegatingStore):
    @property
    def features(self) -> Features:
        return replace(super().features, place=BucketPrefix("s3", "", self.url.split("/")[2], ""))


class Lab:
    """A source and a target in the local S3, and Skyplane between them."""

    def __init__(self, server: S3Server, name: str) -> None:
        self.server = server
        self.client = server.client()
        self.name = name
        self.source_url, self.target_url = f"s3://source/{name}", f"s3://target/{name}"
        self.source = self.open(self.source_url, "us-east-1")
        self.target = self.open(self.target_url, "eu-west-1")
        keys = (server.access_key, server.secret_key)
        self.ec2 = [
            boto3.Session(*keys, region_name=region).client("ec2", endpoint_url=server.endpoint)
            for region in ("us-east-1", "eu-west-1")
        ]

    def open(self, url: str, region: str) -> Store:
        return AsAws(open_store(url, endpoint=self.server.endpoint, region=region))

    def put(self, key: str, data: bytes, **options: Any) -> None:
        self.client.put_object(Bucket="source", Key=f"{self.name}/{key}", Body=data, **options)

    def run(
        self, progress: Progress | None = None, *, keys: Sequence[str] | None = None
    ) -> TransferResult:
        return transfer(
            CopyEnd(self.source_url, self.source, Access(region="us-east-1")),
            CopyEnd(self.target_url, self.target, Access(region="eu-west-1")),
            sorted(self.keys(), key=str.encode) if keys is None else keys,
            limits=Skyplane(timeout_seconds=270),
            total_bytes=1000,
            progress=progress or NullProgress(),
        )

    def listed(self) -> list[ObjectInfo]:
        return [info for page in self.source.list() for info in page]

    def keys(self) -> set[str]:
        return {info.key for info in self.listed()}

    def arrived(self) -> set[str]:
        return {info.key for page in self.target.list() for info in page}

    def finish(self) -> tuple[set[str], set[str]]:
        """Adopt what Skyplane copied, and copy the rest: the keys of both."""
        adopted, copied = set(), set()
        limits = CopyLimits(concurrency=4, budget=ByteBudget(256 * 1024**2))
        for info in self.listed():
            if adopt(ObjectCopy(self.source, info, self.target, info.key), "digest"):
                adopted.add(info.key)
            else:
                copy_object(ObjectCopy(self.source, info, self.target, info.key), limits)
                copied.add(info.key)
        return adopted, copied

    def instances(self) -> set[str]:
        """The states of all machines that were started so far."""
        answers = [ec2.describe_instances() for ec2 in self.ec2]
        groups = [group for answer in answers for group in answer["Reservations"]]
        return {each["State"]["Name"] for group in groups for each in group["Instances"]}

    def key_pairs(self) -> list[str]:
        answers = [ec2.describe_key_pairs() for ec2 in self.ec2]
        return [pair["KeyName"] for answer in answers for pair in answer["KeyPairs"]]

    def close(self) -> None:
        for client in (self.client, *self.ec2):
            client.close()


@pytest.fixture
def lab(
    server: S3Server,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> Iterator[Lab]:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LARDER_SKYPLANE_LOCAL", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(adapter, "RUNNER", LOCAL)
    lab = Lab(server, request.node.name.partition("[")[0])
    yield lab
    lab.close()


class OnBytes(NullProgress):
    def __init__(self, action: Callable[[], None]) -> None:
        self._action: Callable[[], None] | None = action

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        if bytes and self._action is not None:
            action, self._action = self._action, None
            action()


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("larder-skyplane-*"))


def pattern(size_bytes: int) -> bytes:
    """Bytes without a short period, made fast."""
    return bytes(range(256)) * 7 * (size_bytes // 1792) + b"end" + bytes(size_bytes % 1792 - 3)


def test_what_skyplane_copies_is_adopted_and_the_rest_copied(lab, tmp_path):
    lab.put("large.bin", pattern(LARGE_BYTES), ContentType="image/png")
    lab.put("small.bin", b"small" * 1000)
    lab.put("typed.json", b"{}", ContentType="application/json", Metadata={"origin": "camera 1"})
    lab.put("_SUCCESS", b"")
    lab.put("folder/with space+and%41.txt", "grüße".encode())
    lab.put("unasked", b"not in the list of keys")
    lab.put("/slash", b"the key begins with a slash")
    lab.client.put_object(Bucket="source", Key=f"{lab.name}-sibling/x", Body=b"another prefix")

    asked = ["/slash", "0 not there", *sorted(lab.keys() - {"/slash", "unasked"}, key=str.encode)]
    ended = lab.run(keys=asked)

    assert ended.done, ended
    written = LARGE_BYTES + 5000 + 2 + len("grüße".encode())
    assert ended.message.startswith(f"Skyplane wrote {format_bytes(written)} in ")
    assert lab.instances() == {"terminated"}
    assert lab.key_pairs() == []
    assert left_behind(tmp_path) == []
    assert lab.server.uploads("target", f"{lab.name}/") == []
    arrived = {"large.bin", "small.bin", "typed.json", "folder/with space+and%41.txt"}
    assert lab.arrived() == arrived
    adopted, copied = lab.finish()
    assert (adopted, copied) == (
        {"large.bin", "small.bin", "folder/with space+and%41.txt"},
        {"_SUCCESS", "typed.json", "/slash", "unasked"},
    )
    assert lab.arrived() == adopted | copied
    for info in lab.listed():
        assert lab.target.get(info.key) == lab.source.get(info.key)


@pytest.mark.push
def test_an_interruption_in_mid_transfer_ends_everything_and_then_its_machines(lab, tmp_path):
    lab.put("large.bin", pattern(LARGE_BYTES))
    (tmp_path / "hold").mkdir()  # the gateway that writes stops after the first part

    def interrupt() -> None:
        raise FatalError("run.interrupted", "stopped")

    with pytest.raises(FatalError):
        lab.run(OnBytes(interrupt))
    gateway = int((tmp_path / "sink.pid").read_text())
    wait_until(lambda: not is_running(gateway))
    wait_until(lambda: lab.instances() == {"terminated"})
    wait_until(lambda: lab.key_pairs() == [])
    wait_until(lambda: left_behind(tmp_path) == [])
