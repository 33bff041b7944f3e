"""What advice says that a delivery moves and keeps is what a server sends to its readers."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import larder
from larder.config.models.cluster import Downloads, Nodes
from larder.experiments.facts import GAP_BYTES, SPAN_BYTES, Facts, traffic
from larder.pipeline.prepare import prepare
from larder.readers import segment
from larder.shards.reading import ranges
from tests.faults.faults import faulty
from tests.support.fake_gcs import Ask, Say
from tests.support.fake_s3 import FakeS3
from tests.support.runs import run_settings

KEPT = Downloads(host_path="/nvme", container_path="/nvme")
SAMPLES = 96


@dataclass
class Counting(FakeS3):
    sent_bytes: int = 0
    counted: tuple[str, ...] = field(default=("/shards/", "/caches/"))

    def answer(self, ask: Ask) -> Say:
        said = super().answer(ask)
        if ask.method == "GET" and any(folder in ask.path for folder in self.counted):
            with self.lock:
                self.sent_bytes += len(said.body)
        return said


@pytest.fixture(scope="module", params=[None, {"records": "encoded"}], ids=["shards", "cache"])
def published(request, tmp_path_factory) -> tuple[FakeS3, dict[str, Any]]:
    """A version in a bucket, and the document of its run; it may have a cache."""
    folder, bytes_of = tmp_path_factory.mktemp("published"), random.Random(7).randbytes
    source = folder / "source" / "train"
    source.mkdir(parents=True)
    for number in range(SAMPLES):
        (source / f"{number:03}.bin").write_bytes(bytes_of(80_000))
    shards = {"bytes": 800_000}
    settings = run_settings(
        source.parent, folder / "storage", folder, shards=shards, cache=request.param
    )
    run, server = prepare(settings), Counting()
    for path in (folder / "storage").rglob("*"):
        if path.is_file():
            key = path.relative_to(folder / "storage")
            server.answer(Ask("PUT", f"/bucket/{key}", {}, {}, path.read_bytes()))
    return server, run


def read(data: Any, ranks: range, world: int, epochs: int) -> None:
    for rank in ranks:
        loader = data.loader("train", batch_size=16, shuffle=True, rank=rank, world=world)
        for _ in range(epochs):
            assert sum(len(batch["key"]) for batch in loader) == SAMPLES // world


def train(facts: Facts, delivery: str, place: Path, ranks: range) -> None:
    """Do on one node what training does with a delivery."""
    world, epochs = facts.nodes.count * facts.nodes.ranks, round(facts.epochs)
    data = larder.open("s3://bucket/larder/d", cache_dir=place / "cache")
    if delivery == "download":
        data = larder.open(str(data.copy_to(place)))
    if delivery == "bucket" and facts.consumer == "determined" and not facts.cache_bytes:
        for _ in ranks:
            data.download(place / "shards")
        return
    read(data, ranks, world, epochs)


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
    server, run = published
    if delivery == "cache" and not run["cache"]:
        pytest.skip("there is no cache to deliver")
    facts = Facts(
        consumer,
        (delivery,),
        run["shards"]["bytes"],
        run["shards"]["count"],
        cache_bytes=run["cache"]["bytes"] if run["cache"] else None,
        epochs=2,
        trials=2,
        nodes=Nodes(count=2, ranks=2, downloads=downloads),
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    before, disks = server.sent_bytes, []
    with faulty(server) as served:
        monkeypatch.setenv("AWS_ENDPOINT_URL", served.endpoint)
        for trial in range(facts.trials):
            for node in range(facts.nodes.count):
                place = tmp_path / f"{node}-{0 if downloads else trial}"
                is_own = delivery == "bucket" and not facts.downloads_cache("bucket")
                train(
                    facts,
                    delivery,
                    place / str(trial if is_own else 0),
                    range(2 * node, 2 * node + 2),
                )
                disks.append(place)
    taken = traffic(facts, delivery)
    assert server.sent_bytes - before == pytest.approx(taken.moved_bytes, rel=0.05)
    kept = [path for path in disks[-1].rglob("*") if path.is_file()]
    disk_bytes = sum(path.stat().st_size for path in kept)
    starts = facts.trials if downloads and delivery == "bucket" and not run["cache"] else 1
    assert disk_bytes == pytest.approx(taken.disk_bytes * starts, rel=0.05, abs=100_000)


def test_a_request_of_readers_is_as_large_as_advice_counts_it():
    assert (segment.SPAN_BYTES, ranges._GAP_BYTES) == (SPAN_BYTES, GAP_BYTES)
