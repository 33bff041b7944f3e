"""Every store, behind one fixture."""

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from store_place import BUCKET, KINDS, Place

from larder.store import Store
from tests.support.fake_gcs import FakeGcs, fake_gcs
from tests.support.gcs_emulator import GcsEmulator
from tests.support.servers import S3Server


@pytest.fixture
def google_server() -> Iterator[FakeGcs]:
    with fake_gcs() as server:
        server.updated = datetime.now(UTC).isoformat()
        server.page_keys = 3
        yield server


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    kind = request.param
    if kind == "file":
        return Place(kind, f"file://{tmp_path}/store", None)
    if kind == "memory":
        return Place(kind, f"memory://{uuid.uuid4()}/a/prefix", None)
    server: S3Server | GcsEmulator | FakeGcs = request.getfixturevalue(f"{kind}_server")
    server.create_bucket(BUCKET)
    scheme = "gs" if kind in ("gcs", "google") else "s3"
    return Place(kind, f"{scheme}://{BUCKET}/{uuid.uuid4().hex[:12]}/a b", server)


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()
