"""The native engine between real servers and directories: ways, proofs, and what is kept."""

import random
import threading
import uuid
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import google_crc32c
import pytest
from copy_lab import batch
from required import at_push

from larder.budgets import ByteBudget
from larder.copy import large_object, uploads
from larder.copy.allowance import CopyLimits
from larder.copy.proof import CopiedObject
from larder.copy.uploads import UploadRecords
from larder.errors import FatalError, NotFoundError, StoreError
from larder.manifest.digest import format_crc32c
from larder.progress import CancellableProgress, NullProgress
from larder.store import Store, open_store
from larder.store.base import ObjectInfo, Reader
from larder.store.delegate import DelegatingStore
from larder.store.interrupt import interrupted_by
from tests.support.gcs_emulator import GcsEmulator
from tests.support.servers import S3Server, assemble_wrongly
from tests.support.stores import Fail, FaultyStore, RecordingStore

MIB = 1 << 20
PART_BYTES = 5 * MIB
RADOSGW = pytest.mark.radosgw
FIRST = ["rclone", pytest.param("radosgw", marks=RADOSGW), *at_push("moto")]
PAIRS = [
    *(("rclone", "rclone"), ("file", "file")),
    *at_push(("moto", "moto"), ("gcs", "gcs"), ("rclone", "moto"), ("moto", "gcs")),
    *at_push(("gcs", "file"), ("file", "rclone")),
    *(
        pytest.param(*pair, marks=RADOSGW)
        for pair in (("radosgw", "radosgw"), ("radosgw", "gcs"), ("file", "radosgw"))
    ),
]
"""Every kind of store to itself, and each once as the source and once as the target of another."""


def limits_of(**options: Any) -> CopyLimits:
    return CopyLimits(8, ByteBudget(64 * MIB), part_bytes=PART_BYTES, **options)


def content(seed: int, size_bytes: int) -> bytes:
    return random.Random(seed).randbytes(size_bytes)


CONTENTS = {
    "a/empty": b"",
    "a/small.jpg": content(1, 1000),
    "b/ü %20+.bin": content(2, 100_000),
    "b/part": content(3, 5 * MIB),
    "b/parts": content(4, 12 * MIB + 17),
}


def bucket(request: pytest.FixtureRequest, kind: str, tmp_path: Path, name: str) -> Store:
    if kind == "file":
        return open_store(f"{tmp_path}/{name}")
    server: S3Server | GcsEmulator = request.getfixturevalue(f"{kind}_server")
    server.create_bucket("engine")
    scheme = "gs" if kind == "gcs" else "s3"
    return open_store(f"{scheme}://engine/{uuid.uuid4().hex}/{name}", endpoint=server.endpoint)


def fill(store: Store) -> list[ObjectInfo]:
    like = ObjectInfo("", 0, "", 0, content_type="image/jpeg", metadata={"origin": "here"})
    for key, data in CONTENTS.items():
        store.put(key, data, like=like)
    return [info for page in store.list() for info in page]


def run(
    source: Store, target: Store, infos: list[ObjectInfo], limits: CopyLimits | None = None
) -> dict[str, CopiedObject]:
    copied: list[CopiedObject] = []
    assert batch(source, target, infos, limits or limits_of(), copied.append, prefix="to/") == ()
    target.sync()
    assert len(copied) == len(infos)
    return {row.key: row for row in copied}


def check(target: Store, copied: dict[str, CopiedObject], *, kept: bool) -> None:
    for key, data in CONTENTS.items():
        with target.open(f"to/{key}") as reader:
            assert b"".join(reader) == data, key
        row, info = copied[key], reader.info
        assert (row.size_bytes, row.mirror_etag) == (len(data), info.etag), key
        assert row.checksum in (None, format_crc32c(google_crc32c.value(data))), key
        if kept:
            assert info.content_type == "image/jpeg", key
            assert (info.metadata or {})["origin"] == "here"


@pytest.mark.parametrize(("from_", "to"), PAIRS)
def test_every_kind_of_pair(request, tmp_path, from_, to):
    source = bucket(request, from_, tmp_path, "source")
    target = bucket(request, to, tmp_path, "target")
    infos = fill(source)
    recorded = RecordingStore(target)
    copied = run(source, recorded, infos)
    check(target, copied, kept="file" not in (from_, to))
    assert {row.check for row in copied.values()} <= {"md5", "crc32c"}
    by_server = from_ == to != "file"
    assert recorded.count("copy_from") == (len(infos) if by_server else 0)
    if not by_server:
        assert recorded.count("head") <= 1, "no request to verify a copy"


@pytest.mark.parametrize("kind", [*FIRST, *at_push("gcs")])
def test_of_objects_that_are_read_together_only_what_changed_fails(request, tmp_path, kind):
    source = bucket(request, kind, tmp_path, "source")
    target = bucket(request, "file", tmp_path, "target")
    objects = {f"k{number}": content(number, 1_000) for number in range(8)}
    for key, data in objects.items():
        source.put(key, data)
    infos = [info for page in source.list() for info in page]
    source.put("k2", b"changed")
    source.delete("k5")
    copied: list[CopiedObject] = []
    limits = limits_of()
    failures = batch(source, target, infos, limits, copied.append)
    assert {each.key: each.code for each in failures} == {
        "k2": "object.changed",
        "k5": "object.missing",
    }
    assert {row.key: target.get(row.key) for row in copied} == {
        key: data for key, data in objects.items() if key not in ("k2", "k5")
    }
    assert {row.check for row in copied} == {"md5"}


@pytest.mark.parametrize("kind", FIRST)
def test_parts_that_are_assembled_wrongly_are_no_copy(request, tmp_path, kind, monkeypatch):
    source = bucket(request, "file", tmp_path, "source")
    target = bucket(request, kind, tmp_path, "target")
    infos = [info for info in fill(source) if info.key == "b/parts"]
    assemble_wrongly(monkeypatch)
    limits = limits_of()
    (failure,) = batch(source, target, infos, limits, prefix="to/")
    assert failure.code == "object.mismatch"
    assert not list(target.list())


@pytest.mark.parametrize("kind", FIRST)
def test_the_server_copies_parts(request, tmp_path, kind, monkeypatch):
    """rclone answers that it has copied a part, and stores nothing: the check notices."""
    monkeypatch.setattr(large_object, "_SERVER_PART_BYTES", 5 * MIB)
    source = bucket(request, kind, tmp_path, "source")
    target = RecordingStore(bucket(request, kind, tmp_path, "target"))
    copied = run(source, target, fill(source), limits_of(server_copy_bytes=6 * MIB))
    check(target, copied, kept=True)
    streamed = [call for call in target.calls if call.method == "begin_upload"]
    assert len(streamed) == (2 if kind == "rclone" else 1)


@pytest.mark.push
def test_google_copies_objects_of_any_size_at_once(request, tmp_path):
    source = bucket(request, "gcs", tmp_path, "source")
    target = RecordingStore(bucket(request, "gcs", tmp_path, "target"))
    infos = fill(source)
    copied = run(source, target, infos, limits_of(server_copy_bytes=1))
    check(target, copied, kept=True)
    assert target.count("copy_from") == len(infos)


@pytest.mark.parametrize("kind", FIRST)
def test_an_upload_is_continued(request, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(large_object, "RESUME_BYTES", 0)
    monkeypatch.setattr(uploads, "_RECORD_BYTES", 1)
    source = open_store(f"{tmp_path}/source")
    target = bucket(request, kind, tmp_path, "target")
    source.put("k", content(5, 23 * MIB))
    infos = [info for page in source.list() for info in page]
    stop, moved = threading.Event(), [0]

    class Stopping(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            moved[0] += bytes
            if moved[0] >= 10 * MIB:
                stop.set()

    def attempt(progress: NullProgress, source: Store) -> list[CopiedObject]:
        copied: list[CopiedObject] = []
        limits = replace(limits_of(), concurrency=1, uploads=UploadRecords(target, "work/uploads/"))
        watched = CancellableProgress(progress, stop)
        batch(source, target, infos, limits, copied.append, prefix="to/", progress=watched)
        return copied

    with pytest.raises(FatalError, match="stopped"):
        attempt(Stopping(), source)
    assert len([1 for page in target.list("work/uploads/") for _ in page]) == 1
    stop.clear()
    recorded = RecordingStore(source)
    (row,) = attempt(NullProgress(), recorded)
    assert recorded.moved_bytes("open") <= (13 + 23) * MIB, "the rest, and all of it to compare"
    assert target.get("to/k") == content(5, 23 * MIB)
    assert row.checksum == format_crc32c(google_crc32c.value(content(5, 23 * MIB)))
    assert not list(target.list("work/uploads/"))


def test_a_part_that_is_reported_after_the_commit_is_reported_once(request, tmp_path, monkeypatch):
    source = open_store(f"{tmp_path}/source")
    target = bucket(request, "rclone", tmp_path, "target")
    info = source.put("k", content(6, 23 * MIB))
    first, ended, reported = threading.Lock(), threading.Event(), list[int]()
    report = large_object.LargeObject._moved

    def late(large: large_object.LargeObject, size_bytes: int) -> None:
        if first.acquire(blocking=False):
            assert ended.wait(60)
        report(large, size_bytes)

    class Noting(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            reported.append(bytes)
            if objects:
                ended.set()

    monkeypatch.setattr(large_object.LargeObject, "_moved", late)
    assert batch(source, target, [info], limits_of(), progress=Noting()) == ()
    assert sum(reported) == info.size_bytes


@pytest.mark.parametrize("kind", ["rclone", *at_push("moto")])
def test_a_record_of_an_upload_proves_nothing(request, tmp_path, kind, monkeypatch):
    monkeypatch.setattr(large_object, "RESUME_BYTES", 0)
    source = open_store(f"{tmp_path}/source")
    target = bucket(request, kind, tmp_path, "target")
    info = source.put("k", data := content(5, 12 * MIB))
    upload, sent = target.begin_upload("to/k"), []
    assert upload is not None
    for number, start in enumerate(range(0, len(data), PART_BYTES), 1):
        good = data[start : start + PART_BYTES]
        part = upload.send(number, [other := bytes(len(good))], google_crc32c.value(other))
        sent.append(part._replace(crc32c=google_crc32c.value(good), proved=True))
    upload.leave()
    records = UploadRecords(target, "work/uploads/")
    records.save(info, "to/k", PART_BYTES, upload.id, sent)
    limits, copied = limits_of(uploads=records), list[CopiedObject]()
    failed = batch(source, target, [info], limits, copied.append, prefix="to/")[-1]
    assert (failed.code, copied) == ("object.mismatch", [])
    with pytest.raises(NotFoundError):
        target.head("to/k")


class Together(DelegatingStore):
    """Opens two objects at a time, and none alone."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._two = threading.Barrier(2, timeout=60)

    def open(self, key: str, **options: Any) -> Reader:
        self._two.wait()
        return super().open(key, **options)


@pytest.mark.parametrize("to", ["file", *at_push("gcs")])
def test_large_objects_do_not_wait_for_each_other(request, tmp_path, to):
    """Neither a directory nor Google Cloud has uploads whose parts several threads send."""
    source = bucket(request, "file", tmp_path, "source")
    target = bucket(request, to, tmp_path, "target")
    for number in range(4):
        source.put(f"k{number}", content(number, 10 * MIB))
    infos = [info for page in source.list() for info in page]
    copied: list[CopiedObject] = []
    limits = CopyLimits(8, ByteBudget(256 * MIB), part_bytes=MIB)  # more parts than threads
    assert batch(Together(source), target, infos, limits, copied.append) == ()
    assert sorted(row.key for row in copied) == ["k0", "k1", "k2", "k3"]


class Late(DelegatingStore):
    """A store whose writes end when the batch was stopped."""

    def put(self, key: str, *arguments: Any, **more: Any) -> ObjectInfo:
        interrupt = interrupted_by()
        assert interrupt is not None
        with suppress(FatalError):
            while True:
                interrupt.sleep(0.01)
        return self.inner.put(key, *arguments, **more)


def test_what_ends_after_a_stop_is_not_recorded():
    name = uuid.uuid4().hex
    source, target = open_store(f"memory://{name}-source"), open_store(f"memory://{name}")
    infos = [source.put(f"k{number}", b"data") for number in range(3)]
    refusing = FaultyStore(source)
    refusing.add("open", Fail(StoreError("store.denied", "no")), key="k2")
    copied: list[CopiedObject] = []
    with pytest.raises(StoreError, match="no"):
        batch(refusing, Late(target), infos, limits_of(), copied.append)
    assert copied == []
