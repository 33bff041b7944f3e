import hashlib
import threading
import uuid
from typing import Any

import google_crc32c
import pytest

from larder.budgets import ByteBudget
from larder.copy.allowance import CopyLimits
from larder.copy.engine import copy_batch
from larder.copy.object import WHOLE_BYTES, copy_content, copy_object
from larder.copy.proof import CopiedObject, ObjectCopy
from larder.errors import FatalError
from larder.manifest.digest import format_crc32c
from larder.progress import CancellableProgress, NullProgress
from larder.store import RetryPolicy, open_store
from larder.store.base import Buffer, ObjectInfo, Store
from tests.support.errors import larder_error
from tests.support.http_server import served
from tests.support.stores import EncryptedStore, FaultyStore, FlipBit, RecordingStore


def limits_of() -> CopyLimits:
    """Limits of one copy, which count its failures."""
    return CopyLimits(4, ByteBudget(256 * 1024**2))


@pytest.fixture
def source() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/")


@pytest.fixture
def target() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}/")


@pytest.mark.parametrize("listed", [{"etag": "older"}, {"size_bytes": 5}], ids=["etag", "size"])
def test_an_object_that_differs_from_the_listing_has_changed(source, target, listed):
    info = source.put("k", b"1234")._replace(**listed)
    with larder_error("object.changed"):
        copy_object(ObjectCopy(source, info, target, "k"), limits_of())
    assert list(target.list()) == []


class Interrupted(NullProgress):
    """Raises from the first object on, as `larder.progress.CancellableProgress` does if stopped."""

    def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
        raise FatalError("run.interrupted", "stopped")


def test_copies_of_a_stopped_batch_are_still_reported(source, target):
    infos = [source.put(f"{number:02}", b"x") for number in range(40)]
    copied: list[CopiedObject] = []
    options: dict[str, Any] = {"prefix": "m/", "limits": limits_of(), "copied": copied.append}
    with pytest.raises(FatalError):
        copy_batch(source, target, infos, progress=Interrupted(), **options)
    there = {info.key for page in target.list() for info in page}
    assert {f"m/{row.key}" for row in copied} == there
    assert len(there) < len(infos)


class Racing(RecordingStore):
    """A store that something else writes to after each put, and whose etags prove nothing."""

    def __init__(self, inner: Store, theirs: bytes) -> None:
        super().__init__(inner)
        self.theirs = theirs

    def put(self, key: str, data: Buffer, **conditions: Any) -> ObjectInfo:
        info = super().put(key, data, **conditions)
        self.inner.put(key, self.theirs)
        return info


@pytest.mark.parametrize("theirs", [b"same", b"newer"])
def test_a_copy_that_another_run_also_makes_is_a_copy_and_one_that_it_replaces_is_its_own(
    source, target, theirs
):
    racing, info = Racing(EncryptedStore(target), theirs), source.put("k", b"same")
    if theirs == b"same":
        copied = copy_object(ObjectCopy(source, info, racing, "k"), limits_of())
        there = racing.head("k")
        assert (copied.mirror_etag, copied.modified_us) == (there.etag, there.modified_us)
        assert copied.check == "md5"
    else:
        with larder_error("object.mismatch"):
            copy_object(ObjectCopy(source, info, racing, "k"), limits_of())
        assert target.get("k") == theirs


@pytest.mark.parametrize("size_bytes", [1000, WHOLE_BYTES + 1], ids=["at once", "streamed"])
def test_a_bit_flipped_on_the_way_from_the_source_is_found(source, target, size_bytes):
    info = source.put("k", b"x" * size_bytes)
    flipping = FaultyStore(source)
    flipping.add("open", FlipBit())
    with larder_error("object.mismatch"):
        copy_object(ObjectCopy(flipping, info, target, "k"), limits_of())
    assert list(target.list()) == []


def test_what_was_read_is_compared_with_a_crc32c_that_is_its_etag(source, tmp_path):
    """As in GCS, of objects that were composed."""
    info = source.put("k", b"right")._replace(etag=format_crc32c(google_crc32c.value(b"right")))
    target = open_store(str(tmp_path))
    with larder_error("object.mismatch"):
        copy_content(ObjectCopy(source, info, target, "k"), b"wrong", None, limits_of())
    assert list(target.list()) == []


def test_nothing_that_waits_for_memory_is_copied_after_a_stop(source, target):
    infos = [source.put(f"{number:02}", bytes(WHOLE_BYTES + 1)) for number in range(12)]
    stop, copied = threading.Event(), list[CopiedObject]()

    def note(row: CopiedObject) -> None:
        copied.append(row)
        stop.set()

    with larder_error("run.interrupted"):
        copy_batch(
            source,
            target,
            infos,
            prefix="",
            limits=CopyLimits(12, ByteBudget(1)),  # one at a time
            progress=CancellableProgress(NullProgress(), stop),
            copied=note,
        )
    assert len(copied) == 1


MD5 = hashlib.md5(b"a").hexdigest()


@pytest.mark.parametrize("keys", ["a", "ab"], ids=["alone", "together"])
@pytest.mark.parametrize("size_bytes", [1, 10 << 20], ids=["small", "streamed"])
def test_no_more_is_read_than_was_listed(keys, size_bytes, tmp_path):
    """An answer of 3 GB with the listed etag took as much memory, or space of the disk."""
    sent = []

    def serve(one):
        one.recv(65536)
        head = f'HTTP/1.1 200 OK\r\nETag: "{MD5}"\r\nContent-Length: 1099511627776\r\n\r\n'
        one.sendall(head.encode())
        while len(sent) < 200:
            one.sendall(bytes(1 << 20))
            sent.append(1)

    with served(serve) as port:
        once = RetryPolicy(attempts=1)
        source = open_store("s3://bucket", endpoint=f"http://127.0.0.1:{port}", retry=once)
        failures = copy_batch(
            source,
            open_store(str(tmp_path)),
            [ObjectInfo(key, size_bytes, MD5, 1) for key in keys],
            prefix="",
            limits=CopyLimits(1, ByteBudget(1 << 26)),
            progress=NullProgress(),
            copied=lambda copy: None,
        )
    assert [(each.key, each.code) for each in failures] == [(key, "object.changed") for key in keys]
    assert len(sent) < 100  # some are in the buffers of the system
