"""`make live`, as far as servers on this machine allow: the native engine, from S3 to GCS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from larder.store import open_store
from larder.store.access import Access
from larder.testing.gcs_emulator import GcsEmulator
from larder.testing.servers import S3Server

ROOT = Path(__file__).parents[2]


class Accounts:
    """An S3 server and a GCS emulator, as the two accounts."""

    def __init__(self, s3: S3Server, gcs: GcsEmulator, environment: dict[str, str]) -> None:
        s3.create_bucket("live")
        gcs.create_bucket("live")
        self.source = Access(endpoint=s3.endpoint, region="us-east-1")
        self.target = Access(endpoint=gcs.endpoint, region="us-central1")
        self.environment = {
            **environment,
            "LARDER_LIVE_SOURCE": "s3://live/mine/",
            "LARDER_LIVE_SOURCE_REGION": "us-east-1",
            "LARDER_LIVE_SOURCE_ENDPOINT": s3.endpoint,
            "LARDER_LIVE_TARGET": "gs://live/mine",
            "LARDER_LIVE_TARGET_REGION": "us-central1",
            "LARDER_LIVE_TARGET_ENDPOINT": gcs.endpoint,
            "LARDER_LIVE_EGRESS_USD_PER_GB": "0.09",
            "LARDER_LIVE_MAX_USD": "1",
            "LARDER_LIVE_BYTES": "20 MB",
            "LARDER_LIVE_ENGINES": "native",
        }

    def run(self, *arguments: str, without: str = "", **changed: str) -> tuple[int, str, str]:
        environment = {**self.environment, **changed}
        environment.pop(without, None)
        done = subprocess.run(
            [sys.executable, "-m", "larder.testing.live", *arguments],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout, done.stderr

    def keys(self, side: str) -> list[str]:
        url, access = ("s3://live", self.source) if side == "source" else ("gs://live", self.target)
        return [info.key for page in open_store(url, access=access).list() for info in page]


@pytest.fixture
def accounts(rclone_server: S3Server, gcs_server: GcsEmulator) -> Iterator[Accounts]:
    accounts = Accounts(rclone_server, gcs_server, dict(os.environ))
    yield accounts
    for url, access in (("s3://live", accounts.source), ("gs://live", accounts.target)):
        store = open_store(url, access=access)
        for page in list(store.list()):
            for info in page:
                store.delete(info.key)


def test_a_dataset_is_copied_reported_and_deleted(accounts: Accounts) -> None:
    open_store("s3://live", access=accounts.source).put("mine-not/other", b"stays")
    status, out, err = accounts.run("--json")
    assert status == 0, err
    (result,) = json.loads(out)
    small, large, empty = 4, 1, 2  # two per cent of the bytes are small objects
    assert result["objects"] == result["copied_natively"] == small + large + empty
    assert (result["engine"], result["status"], result["vm_hours"]) == ("native", "done", 0)
    assert result["usd"] == pytest.approx(result["predicted_usd"], rel=0.01)
    assert result["usd"] == pytest.approx(0.09 * 0.02, rel=0.2)
    assert result["seconds"] > 0
    assert "deleted everything below gs://live/mine" in err
    assert accounts.keys("source") == ["mine-not/other"]
    assert accounts.keys("target") == []


def test_the_report_is_readable(accounts: Accounts) -> None:
    status, out, err = accounts.run(LARDER_LIVE_BYTES="1 MB")
    assert status == 0, err
    lines = out.splitlines()
    assert lines[0] == "s3://live/mine to gs://live/mine: 1.0 MB"
    assert lines[1] == "native: done"
    assert lines[2] == "  objects    4, 4 by the native engine"
    assert "(predicted $0.00) at list prices" in lines[4]


@pytest.mark.parametrize(
    "missing", ["LARDER_LIVE_SOURCE", "LARDER_LIVE_TARGET_REGION", "LARDER_LIVE_MAX_USD"]
)
def test_without_all_variables_nothing_starts(accounts: Accounts, missing: str) -> None:
    status, out, err = accounts.run(without=missing)
    assert (status, out) == (2, "")
    assert err.startswith(f"make live: not set: {missing};")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"LARDER_LIVE_MAX_USD": "0.001"}, "more than LARDER_LIVE_MAX_USD"),
        ({"LARDER_LIVE_MAX_USD": "nan"}, "LARDER_LIVE_MAX_USD: out of range"),
        ({"LARDER_LIVE_TARGET": "gs://live"}, "not a bucket with a prefix of its own"),
        ({"LARDER_LIVE_SOURCE": "/tmp/x"}, "not a bucket with a prefix of its own"),
        ({"LARDER_LIVE_ENGINES": "rsync"}, "no such engine"),
    ],
)
def test_wrong_settings_are_refused(accounts: Accounts, changed: dict[str, Any], said: str) -> None:
    status, out, err = accounts.run(**changed)
    assert (status, out) == (2, "")
    assert said in err
    assert accounts.keys("source") == []


def test_a_prefix_with_objects_is_refused_and_kept(accounts: Accounts) -> None:
    open_store("gs://live/mine", access=accounts.target).put("precious", b"data")
    status, _, err = accounts.run()
    assert status == 2
    assert "it has objects, and this would delete them" in err
    assert accounts.keys("target") == ["mine/precious"]
