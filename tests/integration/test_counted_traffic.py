"""What advice says that a delivery moves and keeps is what a server sends to its readers."""

import random
from dataclasses import dataclass
from pathlib import Path

import pytest

import larder
from larder.experiments.facts import GAP_BYTES, SPAN_BYTES
from larder.pipeline.delivery_facts import version_choices
from larder.pipeline.preparing import prepare
from larder.readers import segment
from larder.shards.reading import ranges
from larder.store import open_store
from larder.versions.tags import published_version
from tests.faults.faults import faulty
from tests.support.fake_gcs import Ask, Say
from tests.support.fake_s3 import FakeS3
from tests.support.runs import run_settings

KEPT = {"host_path": "/nvme", "container_path": "/nvme"}
SAMPLES, EPOCHS, TRIALS, NODES, RANKS = 96, 2, 2, 2, 2


@dataclass
class Counting(FakeS3):
    sent_bytes: int = 0

    def answer(self, ask: Ask) -> Say:
        said = super().answer(ask)
        if ask.method == "GET" and ("/shards/" in ask.path or "/caches/" in ask.path):
            with self.lock:
                self.sent_bytes += len(said.body)
        return said


@pytest.fixture(scope="module", params=[None, {"records": "encoded"}], ids=["shards", "cache"])
def published(request, tmp_path_factory) -> tuple[Counting, Path]:
    """A bucket with a version, which may have a cache, and a directory with the same."""
    folder, bytes_of = tmp_path_factory.mktemp("published"), random.Random(7).randbytes
    source = folder / "source" / "train"
    source.mkdir(parents=True)
    for number in range(SAMPLES):
        (source / f"{number:03}.bin").write_bytes(bytes_of(GAP_BYTES + 10_000))
    shards = {"bytes": 800_000}
    prepare(
        run_settings(source.parent, folder / "storage", folder, shards=shards, cache=request.param)
    )
    server = Counting()
    for path in (folder / "storage").rglob("*"):
        if path.is_file():
            key = path.relative_to(folder / "storage")
            server.answer(Ask("PUT", f"/bucket/{key}", {}, {}, path.read_bytes()))
    return server, folder / "storage"


def train(delivery: str, node: int, place: Path) -> None:
    for rank in range(node * RANKS, (node + 1) * RANKS):
        data = larder.open("s3://bucket/larder/d", cache_dir=place / "cache")
        if delivery == "download":
            data = larder.open(data.copy_to(place))
        loader = data.loader("train", batch_size=16, shuffle=True, rank=rank, world=NODES * RANKS)
        read = [len(batch["key"]) for _ in range(EPOCHS) for batch in loader]
        assert sum(read) == EPOCHS * SAMPLES // (NODES * RANKS)


@pytest.mark.parametrize("downloads", [None, KEPT], ids=["anew", "kept"])
@pytest.mark.parametrize(
    ("consumer", "delivery"),
    [
        ("determined", "stream"),
        ("determined", "bucket"),
        ("determined", "download"),
        ("determined", "cache"),
        ("json", "bucket"),
    ],
)
def test_a_server_sends_what_advice_counts(
    consumer, delivery, downloads, published, tmp_path, monkeypatch
):
    server, storage = published
    settings = run_settings(
        "/source",
        {"url": "s3://bucket"},
        tmp_path,
        cluster={
            "consumer": {"kind": consumer},
            "nodes": {"count": NODES, "ranks": RANKS, "downloads": downloads},
        },
        experiment={"epochs": EPOCHS, "trials": TRIALS},
    )
    version = published_version(open_store(str(storage / "larder/d")), "d", "latest")
    (advised,) = (
        option
        for option in version_choices(settings, version).options
        if option.delivery == delivery
    )
    if not advised.possible:
        assert (delivery, version.cache) == ("cache", None)
        return
    # Without a cache, code for Determined's bucket downloads the shards, to a place of its own.
    is_copied = (consumer, delivery) == ("determined", "bucket") and version.cache is None
    reads = "download" if is_copied else delivery
    before = server.sent_bytes
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    with faulty(server) as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL", served.endpoint)
        for trial in range(TRIALS):
            for node in range(NODES):
                place = tmp_path / f"{node}-{0 if downloads and not is_copied else trial}"
                train(reads, node, place)
    assert server.sent_bytes - before == pytest.approx(advised.moved_bytes, rel=0.05)
    kept_bytes = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
    assert kept_bytes == pytest.approx(advised.disk_bytes, rel=0.05, abs=100_000)


def test_a_request_of_readers_is_as_large_as_advice_counts_it():
    assert (segment.SPAN_BYTES, ranges._GAP_BYTES) == (SPAN_BYTES, GAP_BYTES)
