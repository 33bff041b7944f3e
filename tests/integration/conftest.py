"""The S3 servers, an empty bucket, processes that are noted, and a dataset of small texts."""

import itertools
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from pipeline_lab import Lab
from verify_lab import text_lab

from larder.jobs import crew, processes
from larder.store.base import Store
from tests.support.servers import S3Server

_NUMBERS = itertools.count()
SERVERS = ["rclone", "moto", pytest.param("radosgw", marks=pytest.mark.radosgw)]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def bucket(s3_env: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of an empty folder of a bucket, of which copies are below ``tmp_path``."""
    name = f"caches-{os.getpid()}-{next(_NUMBERS)}"
    boto3.client("s3", endpoint_url=s3_env.endpoint).create_bucket(Bucket=name)
    monkeypatch.setenv("LARDER_CACHE_DIR", str(tmp_path / "local"))
    return f"s3://{name}/dir"


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has every batch divided among processes; the IDs of those that were started."""
    pids: list[int] = []
    begin = processes.Process.__init__

    def noted(process: Any, together: int) -> None:
        begin(process, together)
        pids.append(process.process.pid)

    monkeypatch.setattr(crew, "_START_SECONDS", -math.inf)
    monkeypatch.setattr(crew, "_LEAST_UNIT_BYTES", 1)
    monkeypatch.setattr(processes.Process, "__init__", noted)
    return pids


@pytest.fixture
def text(tmp_path: Path) -> Lab:
    return text_lab(tmp_path)


@pytest.fixture
def root(text: Lab) -> Iterator[Store]:
    with text.opened_root() as store:
        yield store
