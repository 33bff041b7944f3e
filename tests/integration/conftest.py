"""The S3 servers, and a dataset of small texts for tests that repair it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pipeline_lab import Lab
from verify_lab import text_lab

from larder.store.base import Store
from tests.support.servers import S3Server

SERVERS = ["rclone", "moto", pytest.param("radosgw", marks=pytest.mark.radosgw)]


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return found


@pytest.fixture
def text(tmp_path: Path) -> Lab:
    return text_lab(tmp_path)


@pytest.fixture
def root(text: Lab) -> Iterator[Store]:
    with text.opened_root() as store:
        yield store
