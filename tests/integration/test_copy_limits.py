"""What a copy may take: a stop that no server delays, and memory."""

import os
import socket
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from copy_lab import batch
from required import at_night

from larder.budgets import ByteBudget
from larder.copy.allowance import CopyLimits
from larder.copy.proof import CopiedObject
from larder.errors import FatalError, ObjectError
from larder.progress import CancellableProgress, NullProgress
from larder.store import Access, open_store
from larder.store.base import ObjectInfo, Reader, Store
from larder.store.delegate import DelegatingStore
from tests.support.http_server import served
from tests.support.processes import run_python
from tests.support.servers import rclone_s3

pytestmark = pytest.mark.push

MIB = 1 << 20


def limits_of() -> CopyLimits:
    return CopyLimits(4, ByteBudget(64 * MIB))


SIZE_BYTES = 200 * 10**9
FACTS = b'ETag: "etag-9"\r\nLast-Modified: Fri, 02 Jan 2026 03:04:05 GMT\r\nContent-'
HEAD = b"HTTP/1.1 200 OK\r\n%sLength: %d\r\n\r\n" % (FACTS, SIZE_BYTES)
PART = b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-1/%d\r\n" % SIZE_BYTES
PART += b"%sLength: %d\r\n\r\n" % (FACTS, 16 * MIB) + b"x" * 1000
"""The beginning of an answer; nothing follows."""


@pytest.mark.parametrize("to", ["bucket", "directory"])
def test_a_stop_waits_for_no_server(rclone_server, tmp_path, monkeypatch, to):
    """Within an object of 200 GB, of which the next byte never comes."""
    for name, text in rclone_server.environment.items():
        monkeypatch.setenv(name, text)
    rclone_server.create_bucket("limits")
    target = open_store(str(tmp_path) if to == "directory" else f"s3://limits/{uuid.uuid4().hex}")
    reached, stop = threading.Event(), threading.Event()

    def serve(one: socket.socket) -> None:
        while request := one.recv(65536):
            one.sendall(HEAD if request.startswith(b"HEAD") else PART)
            if request.startswith(b"GET"):
                reached.set()

    class Stopping(NullProgress):
        def advance(self, stage: str, *, objects: int = 0, bytes: int = 0) -> None:
            if reached.is_set():
                stop.set()

    with served(serve) as port:
        access = Access(endpoint=f"http://127.0.0.1:{port}", give_up_seconds=86_400)
        source = open_store("s3://source/in", access=access)
        with pytest.raises(FatalError) as caught:
            batch(
                source,
                target,
                [ObjectInfo("k", SIZE_BYTES, "etag-9", 0)],
                limits_of(),
                lambda row: pytest.fail(f"{row.key} was copied"),
                progress=CancellableProgress(Stopping(), stop),
            )
    assert caught.value.code == "run.interrupted"
    assert [info for page in target.list() for info in page] == []


class FirstPartStalls(DelegatingStore):
    """Its first part comes, or fails, once no other can be read, or all have been."""

    def __init__(
        self, inner: Store, budget: ByteBudget, part_bytes: int, others: int, *, fails: bool
    ) -> None:
        super().__init__(inner)
        self._fails = fails
        self.read = 0
        """How many parts were opened while the first stalled."""
        self._budget, self._part_bytes, self._others = budget, part_bytes, others
        self._over = threading.Event()

    def open(self, key: str, **options: Any) -> Reader:
        if options.get("offset", 0) == 0:
            while self.read < self._others and not self._spent():
                self._over.wait(0.01)
            self._over.set()
            if self._fails:
                raise ObjectError("object.unreadable", "a test", where=key)
        elif not self._over.is_set():
            self.read += 1
        return super().open(key, **options)

    def _spent(self) -> bool:
        """Whether the parts that were read hold all of the budget, not only those in progress."""
        taken = self._budget.try_acquire(self._part_bytes)
        if taken is not None:
            self._budget.release(taken)
        return taken is None and not self._over.wait(0.5)


@pytest.mark.parametrize("fails", [True, *at_night(False)])
def test_parts_that_wait_for_an_earlier_one_count_as_memory(moto_server, fails):
    """To prove the copy, the parts go through MD5 in their order; no thread waits with them."""
    part_bytes, parts, memory = 5 * MIB, 10, 3
    moto_server.create_bucket("limits")
    # Parts that are sent while their upload is aborted are not tried again for long.
    access = Access(endpoint=moto_server.endpoint, give_up_seconds=5 if fails else 300)
    target = open_store(f"s3://limits/{uuid.uuid4().hex}", access=access)
    source = open_store(f"memory://{uuid.uuid4().hex}")
    data = os.urandom(parts * part_bytes)
    limits = replace(
        limits_of(),
        concurrency=2,
        budget=ByteBudget(memory * part_bytes),
        part_bytes=part_bytes,
    )
    copied: list[CopiedObject] = []

    # What the etag of an object in parts is becomes known with the first of them.
    before = source.put("before", data[: 2 * part_bytes])
    assert batch(source, target, [before], limits) == ()
    info = source.put("k", data)
    stalling = FirstPartStalls(source, limits.budget, part_bytes, parts - 1, fails=fails)
    failures = batch(stalling, target, [info], limits, copied.append)
    assert stalling.read < memory
    if fails:
        assert "object.unreadable" in [failure.code for failure in failures]
    else:
        assert failures == ()
        assert copied[-1].check == "md5"
        assert target.get("k") == data
    assert limits.budget.try_acquire(memory * part_bytes), "all of it was given back"


COPY = r"""
import re
from pathlib import Path
from larder.cli.main import main
assert main() == 0
print(1024 * int(re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())[1]))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak there")
def test_the_peak_of_a_copy_between_two_buckets(tmp_path):
    """The interpreter and its packages take a third of it, and a half of a gigabyte is copied."""
    with rclone_s3(tmp_path / "one") as one, rclone_s3(tmp_path / "two") as two:
        for number in range(4):
            path = tmp_path / "one/source" / f"{number}.bin"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(os.urandom(128 * MIB))
        for number in range(500):
            (tmp_path / "one/source" / f"s{number}").write_bytes(os.urandom(110_000))
        two.create_bucket("target")
        ends = [f"source.endpoint={one.endpoint}", f"storage.endpoint={two.endpoint}"]
        flags = [word for end in ends for word in ("--set", end)]
        environment = {**one.environment}
        del environment["AWS_ENDPOINT_URL"]
        command = ["copy", "s3://source", "s3://target", "--quiet", *flags]
        done = run_python("-c", COPY, *command, **environment)
        assert done.returncode == 0, done.stderr
        there = open_store("s3://target", endpoint=two.endpoint)
        copied = sum(info.size_bytes for page in there.list() for info in page)
        assert copied > 4 * 128 * MIB + 500 * 110_000
    assert int(done.stdout) < 300_000_000
