"""Skyplane's own client and planner, on this machine, up to the machines that it starts."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from required import need_system

from larder.config.models.copying import Skyplane
from larder.config.urls import Access
from larder.copy.skyplane import adapter
from larder.copy.skyplane.choice import Side, skyplane_python
from larder.progress import NullProgress
from larder.store import Store, open_store
from larder.store.base import BucketPrefix, Features
from larder.store.delegate import DelegatingStore
from tests.support.servers import S3Server, moto_s3

PROGRAM = Path(__file__).parents[1] / "support/skyplane_without_gateways.py"
REGIONS = {"source": "us-east-1", "target": "eu-west-1"}


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    """A moto of its own: it also has a local EC2."""
    python = skyplane_python(Skyplane())
    need_system(python.is_file(), "Skyplane is not set up (`make skyplane` does that)")
    with moto_s3() as running:
        for name, value in running.environment.items():
            monkeypatch.setenv(name, value)
        client = running.client()
        for name, region in REGIONS.items():
            place = {} if region == "us-east-1" else {"LocationConstraint": region}
            options: dict[str, Any] = {"CreateBucketConfiguration": place} if place else {}
            client.create_bucket(Bucket=name, **options)
        client.put_object(Bucket="source", Key="in/a.bin", Body=b"1" * 1000)
        client.close()
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        monkeypatch.setattr(adapter, "RUNNER", PROGRAM)
        yield running


class AsAws(DelegatingStore):
    """A bucket of the local server, as if it were one of AWS."""

    @property
    def features(self) -> Features:
        return replace(super().features, place=BucketPrefix("s3", "", self.url.split("/")[2], ""))


def side(server: S3Server, name: str, url: str) -> Side:
    access = Access(region=REGIONS[name])
    store: Store = AsAws(open_store(url, endpoint=server.endpoint, region=access.region))
    return Side(url, store, access)


def test_machines_whose_gateways_fail_are_ended_and_nothing_is_left(server, tmp_path):
    target = side(server, "target", "s3://target/out")
    ended = adapter.transfer(
        side(server, "source", "s3://source/in"),
        target,
        ["a.bin"],
        limits=Skyplane(timeout_seconds=270),
        total_bytes=1000,
        progress=NullProgress(),
    )
    assert not ended.done
    assert "no gateway answers" in ended.message
    assert list(target.store.list()) == []
    assert [path.name for path in tmp_path.glob("larder-skyplane-*/*")] == ["log"]
    for region in REGIONS.values():
        keys = (server.access_key, server.secret_key)
        ec2 = boto3.Session(*keys, region_name=region).client("ec2", endpoint_url=server.endpoint)
        assert ec2.describe_key_pairs()["KeyPairs"] == []
        groups = ec2.describe_instances()["Reservations"]
        states = [each["State"]["Name"] for group in groups for each in group["Instances"]]
        assert states == ["terminated"]
        ec2.close()
