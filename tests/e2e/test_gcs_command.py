"""The real commands between two buckets of Google Cloud Storage, as an emulator answers."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from larder.store import open_store
from tests.support.commands import Workplace
from tests.support.gcs_emulator import GcsEmulator
from tests.support.imagenet import imagenet_like

IMAGES = 30
LARDER = ("-m", "larder.cli.main")
SMALL = (
    "--set",
    "mirror=true",
    "--set",
    "shards.bytes=400 kB",
    "--set",
    "cluster.runner.batch_bytes=800 kB",
)


@pytest.fixture
def place(gcs_server: GcsEmulator, tmp_path: Path) -> Workplace:
    gcs_server.create_bucket("e2e")
    bucket = f"gs://e2e/{uuid.uuid4().hex[:12]}"
    store = open_store(f"{bucket}/source", endpoint=gcs_server.endpoint)
    for key, data in imagenet_like(IMAGES, classes=3):
        store.put(key, data)
    return Workplace(
        tmp_path,
        IMAGENET_SOURCE=f"{bucket}/source",
        STORAGE=f"{bucket}/storage",
        **gcs_server.environment,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "way", [(*LARDER, "prepare"), ("-m", "flows.prepare")], ids=["larder", "flow"]
)
@pytest.mark.exhaustive(after=1)
def test_a_dataset_is_prepared_between_two_buckets(place: Workplace, way: tuple[str, ...]) -> None:
    there = place.environment["STORAGE"]
    arguments = ("--dataset", "imagenet", "--set", f"cluster.storage.url={there}", *SMALL)
    done = place.run(*arguments, "--json", "--quiet", python=way)
    assert done.status == 0, done.err
    assert done.document["status"] == "built"
    assert done.document["copied"]["count"] == IMAGES
    again = place.run(*arguments, "--json", "--quiet", python=way)
    assert (again.status, again.document["status"]) == (0, "reused")
    assert again.document["version"] == done.document["version"]
