"""Copies between real S3 servers and directories."""

from __future__ import annotations

import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from copy_lab import CopyLab, calls
from costs_lab import blob
from pipeline_lab import DOCUMENT, opened, write

from larder.config.access import Access
from larder.copy import copy_limits, uploads
from larder.copy.uploads import UploadRecords
from larder.errors import FatalError, StoreError
from larder.jobs.runner import InlineRunner
from larder.pipeline.copying import copy
from larder.pipeline.copying_record import UPLOADS_PREFIX
from larder.pipeline.copying_settings import load_copy_settings
from larder.pipeline.pruning import PruneSettings, prune
from larder.progress import StageTimes
from larder.store.base import ObjectInfo, UploadedPart
from larder.store.interrupt import interrupted_by
from larder.store.s3.bucket import S3Bucket
from larder.store.s3.listing import list_uploads
from larder.store.s3.multipart import S3Upload
from tests.support.servers import S3Server

pytestmark = pytest.mark.exhaustive

OBJECTS = {
    f"{name}/{number:02} é+.bin": blob(f"{name}{number}", 1_000)
    for name in "ab"
    for number in range(8)
} | {"empty": b""}
LARGE = {"large.bin": blob("large", 12 << 20)}
SERVERS = ["rclone", "moto", pytest.param("radosgw", marks=pytest.mark.radosgw)]


@dataclass(frozen=True)
class Bucket:
    """A prefix of a server."""

    url: str
    server: S3Server

    @staticmethod
    def make(server: S3Server) -> Bucket:
        server.create_bucket("copying")
        return Bucket(f"s3://copying/{uuid.uuid4().hex[:12]}/here", server)

    @property
    def how(self) -> dict[str, str]:
        return {"endpoint": self.server.endpoint, "region": self.server.region}

    def settings(self, side: str) -> list[str]:
        return [f"{side}.{name}={value}" for name, value in self.how.items()]

    def fill(self, objects: dict[str, bytes]) -> None:
        write(self.url, objects, **self.how)

    def objects(self) -> dict[str, bytes]:
        with opened(self.url, **self.how) as store:
            return {
                info.key: bytes(store.get(info.key))
                for page in store.list()
                for info in page
                if not info.key.startswith("_larder/")
            }

    def remove(self, key: str) -> None:
        with opened(self.url, **self.how) as store:
            store.delete(key)


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copy_limits, "PART_BYTES", 5 << 20)


@pytest.fixture(params=SERVERS)
def server(request: pytest.FixtureRequest) -> S3Server:
    found: S3Server = request.getfixturevalue(f"{request.param}_server")
    return found


def between_buckets(source: Bucket, storage: Bucket) -> CopyLab:
    settings = [*source.settings("source"), *storage.settings("storage")]
    return CopyLab(source.url, storage.url, {"settings": settings})


def check_cycle(lab: CopyLab, source: Bucket, storage: Bucket) -> DOCUMENT:
    """A first copy, one without changes, one of a change, and a prune."""
    first: DOCUMENT = lab.copy()
    assert storage.objects() == source.objects()
    assert sum(first["checks"].values()) == first["objects"]["count"]
    (idle, reads, storage_calls) = calls_of(lab)
    assert idle["status"] == "current"
    assert {method for method, _ in reads} == {"list"}
    assert sorted(method for method, _ in storage_calls) == ["get", "list", "list", "open"]
    source.fill({"a/00 é+.bin": b"changed", "new": b"new"})
    source.remove("empty")
    changed = lab.copy()
    assert (changed["copied"]["count"], changed["replaced"]) == (2, 1)
    assert changed["gone"]["keys"] == ["empty"]
    assert storage.objects() == source.objects() | {"empty": b""}
    done = prune(PruneSettings(lab.settings(), 1), InlineRunner(1, StageTimes()))
    assert done["deleted"]["count"] == 1
    assert storage.objects() == source.objects()
    assert lab.copy()["status"] == "current"
    return first


def calls_of(lab: CopyLab) -> tuple[DOCUMENT, list[Any], list[Any]]:
    """The calls of a copy; both sides may have the same server, but not the same URL."""
    result, source, storage = calls(lab, lab.copy)
    return (
        result,
        [(call.method, call.key) for call in source],
        [(call.method, call.key) for call in storage],
    )


def test_within_a_server(server: S3Server) -> None:
    source, storage = Bucket.make(server), Bucket.make(server)
    source.fill(OBJECTS | LARGE)
    check_cycle(between_buckets(source, storage), source, storage)


@pytest.mark.parametrize("server", SERVERS[1:], indirect=True)
def test_between_two_servers(rclone_server: S3Server, server: S3Server) -> None:
    source, storage = Bucket.make(rclone_server), Bucket.make(server)
    source.fill(OBJECTS | LARGE)
    check_cycle(between_buckets(source, storage), source, storage)


def test_from_a_directory_and_back(server: S3Server, tmp_path: Path) -> None:
    write(tmp_path / "up", OBJECTS | LARGE)
    storage = Bucket.make(server)
    up = CopyLab(str(tmp_path / "up"), storage.url, {"settings": storage.settings("storage")})
    up.copy()
    assert storage.objects() == OBJECTS | LARGE
    assert up.copy()["status"] == "current"
    down = CopyLab(storage.url, str(tmp_path / "down"), {"settings": storage.settings("source")})
    down.copy()
    assert down.there() == OBJECTS | LARGE
    assert down.copy()["status"] == "current"


@pytest.mark.parametrize("moment", ["_begun", "send", "_complete"])
@pytest.mark.parametrize("how", ["interrupt", "refusal"])
def test_a_copy_that_is_stopped_leaves_no_upload(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str, how: str
) -> None:
    """An upload whose completion was stopped was left behind, and paid for."""
    large = {f"{n}.bin": blob(f"large{n}", 12 << 20) for n in range(3)}
    write(tmp_path / "up", large)
    storage, stop = Bucket.make(server), threading.Event()
    request = getattr(S3Upload, moment)

    def stopping(*arguments: Any, **more: Any) -> Any:
        interrupt = interrupted_by()
        assert interrupt is not None
        if how == "refusal" and not stop.is_set():
            stop.set()
            raise StoreError("store.denied", "refused")
        stop.set()
        with suppress(FatalError):
            interrupt.sleep(60)
        return request(*arguments, **more)

    monkeypatch.setattr(S3Upload, moment, stopping)
    settings = [*storage.settings("storage"), "runner.workers=1"]
    job = load_copy_settings(str(tmp_path / "up"), storage.url, settings=settings)
    runner = InlineRunner(1, StageTimes(), stop if how == "interrupt" else None)
    with pytest.raises(FatalError if how == "interrupt" else StoreError):
        copy(job, runner)
    assert stop.is_set()
    access = S3Bucket("copying", storage.url, Access(**storage.how))
    prefix = storage.url.removeprefix("s3://copying/") + "/"
    assert list_uploads(access, prefix=prefix) == []


def test_a_bucket_that_does_not_exist_ends_it(server: S3Server, tmp_path: Path) -> None:
    write(tmp_path / "up", OBJECTS)
    settings = [*Bucket("", server).settings("storage")]
    lab = CopyLab(str(tmp_path / "up"), "s3://there-is-none/x", {"settings": settings})
    with pytest.raises(StoreError) as caught:
        lab.copy()
    assert caught.value.code == "store.missing"


@pytest.mark.parametrize("days", [0, 1])
def test_only_uploads_of_our_own_records_are_aborted_after_a_day(
    server: S3Server, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", 86_400.0 * (1 - days) - 60)
    source, storage = Bucket.make(server), Bucket.make(server)
    source.fill(OBJECTS)
    lab = between_buckets(source, storage)
    with opened(storage.url, **storage.how) as store:
        for key in ("ours", "theirs"):
            upload = store.begin_upload(key)
            assert upload is not None
            upload.leave()
            if key == "ours":
                info, parts = ObjectInfo(key, 9, "e", 0), [UploadedPart(1, 5, "e", 0, True)]
                UploadRecords(store, UPLOADS_PREFIX).save(info, key, 5, upload.id, parts)
        store.put(f"{UPLOADS_PREFIX}damaged.json", b"{")
    assert lab.copy()["copied"]["count"] == len(OBJECTS)
    access = S3Bucket("copying", storage.url, Access(**storage.how))
    prefix = storage.url.removeprefix("s3://copying/") + "/"
    left = sorted(each.key.removeprefix(prefix) for each in list_uploads(access, prefix=prefix))
    assert left == (["theirs"] if days else ["ours", "theirs"])
    assert len([key for key in lab_own(storage) if key.startswith(UPLOADS_PREFIX)]) == 2 * (
        not days
    )


def lab_own(storage: Bucket) -> list[str]:
    with opened(storage.url, **storage.how) as store:
        return [info.key for page in store.list("_larder/") for info in page]
