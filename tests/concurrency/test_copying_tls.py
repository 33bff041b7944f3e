"""Copies over TLS that are stopped, or refused, at random moments keep no wrong byte.

The etags of the source are no MD5, as those of objects that were written in parts: nothing but the
transport says that what was received is what was sent. LARDER_TLS_TRIALS sets the number of trials.
"""

from __future__ import annotations

import os
import random
import threading
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from required import at_night

from larder.copy.copy_settings import load_copy_settings
from larder.copy.run import copy
from larder.errors import LarderError
from larder.jobs.runner import InlineRunner
from larder.progress import StageTimes
from larder.store import open_store
from tests.support.certificates import Certificate, local_certificate
from tests.support.gcs_emulator import GcsEmulator
from tests.support.http_server import QuietHandler, serving
from tests.support.runs import forget_manifests
from tests.support.servers import S3Server

TRIALS = int(os.environ.get("LARDER_TLS_TRIALS", "12"))
SIZES = (*[300_000] * 8, *[1_000_000] * 24, 9_000_000)
"""Of the objects; the last one is too large to be held in memory as a whole."""
DENIED = b"<Error><Code>InvalidAccessKeyId</Code></Error>"
OWN = "_larder/"


@dataclass
class Source:
    """A bucket behind TLS: ``stop`` is set after ``stop_after`` requests for objects."""

    objects: dict[str, bytes]
    endpoint: str = ""
    refused: str = ""
    slow: bool = True
    stop_after: int = 0
    stop: threading.Event = field(default_factory=threading.Event)

    def count(self) -> None:
        """An object was asked for."""
        self.stop_after -= 1
        if self.stop_after == 0:
            threading.Timer(random.uniform(0, 0.1), self.stop.set).start()

    def listing(self) -> bytes:
        contents = "".join(
            f"<Contents><Key>{key}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
            f"<ETag>&quot;{etag(data)}&quot;</ETag><Size>{len(data)}</Size></Contents>"
            for key, data in sorted(self.objects.items())
        )
        whole = f"<IsTruncated>false</IsTruncated>{contents}"
        return f"<ListBucketResult>{whole}</ListBucketResult>".encode()


def etag(data: bytes) -> str:
    return f"{md5(data, usedforsecurity=False).hexdigest()}-2"


def handler(source: Source, certificate: Certificate) -> type[QuietHandler]:
    context = certificate.context()

    class Handler(QuietHandler):
        def setup(self) -> None:
            self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def do_GET(self) -> None:  # noqa: N802
            key = urlsplit(self.path).path.removeprefix("/bucket").removeprefix("/")
            if not key:
                self.found(200, source.listing())
                return
            source.count()
            if key == source.refused:
                time.sleep(random.uniform(0, 0.3))
                self.found(403, DENIED)
            else:
                self.found(200, source.objects[key])

        def found(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("ETag", f'"{etag(body)}"')
            self.send_header("Last-Modified", "Fri, 02 Jan 2026 03:04:05 GMT")
            self.end_headers()
            if source.slow:
                time.sleep(random.uniform(0, 0.02))
            self.wfile.write(body)

        def handle(self) -> None:
            with suppress(OSError):  # the client may close the connection
                super().handle()

        def finish(self) -> None:
            with suppress(OSError), self.request:
                super().finish()

    return Handler


@dataclass(frozen=True)
class Target:
    """Where copies go."""

    url: str
    endpoint: str = ""

    def contents(self) -> dict[str, bytes]:
        store = open_store(self.url, endpoint=self.endpoint or None)
        keys = [info.key for page in store.list() for info in page]
        return {key: store.get(key) for key in keys if not key.startswith(OWN)}


def run(source: Source, target: Target, stop_after: int = 0) -> None:
    forget_manifests()
    source.stop_after, source.stop = stop_after, threading.Event()
    options = [f"source.endpoint={source.endpoint}", "copy.concurrency=32", "runner.workers=1"]
    if target.endpoint:
        options.append(f"storage.endpoint={target.endpoint}")
    settings = load_copy_settings("s3://bucket/", target.url, settings=options)
    runner = InlineRunner(settings.workers, StageTimes(), source.stop)
    copy(settings, runner)


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    name = uuid.uuid4().hex
    if request.param == "directory":
        (tmp_path / "target").mkdir()
        return Target(str(tmp_path / "target"))
    if request.param == "s3":
        s3: S3Server = request.getfixturevalue("rclone_server")
        s3.create_bucket("over-tls")
        return Target(f"s3://over-tls/{name}", s3.endpoint)
    gcs: GcsEmulator = request.getfixturevalue("gcs_server")
    gcs.create_bucket("over-tls")
    return Target(f"gs://over-tls/{name}", gcs.endpoint)


KINDS = ("directory", "s3", "gcs")


@pytest.mark.parametrize(
    ("target", "trial"),
    at_night(*((KINDS[trial % 3], trial) for trial in range(TRIALS)), but=((KINDS[0], 0),)),
    indirect=["target"],
)
def test_nothing_wrong_is_kept(
    target: Target, trial: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(trial)
    objects = {f"{n % 3}/{n:02}.bin": chance.randbytes(size) for n, size in enumerate(SIZES)}
    source = Source(objects)
    certificate = local_certificate(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(certificate.path))
    with serving(handler(source, certificate)) as url:
        source.endpoint = url.replace("http:", "https:")
        if trial % 2:  # something is refused, which ends the batch
            source.refused = chance.choice(sorted(objects))
            with pytest.raises(LarderError):
                run(source, target)
            source.refused = ""
            assert not wrong(target, objects)
        for _ in range(3):
            with suppress(LarderError):  # everything may be copied
                run(source, target, stop_after=chance.randrange(1, 30))
            assert not wrong(target, objects)
        source.slow = False
        run(source, target)
        assert target.contents() == objects


def wrong(target: Target, objects: dict[str, bytes]) -> list[str]:
    """The keys of copies that differ."""
    return [key for key, data in target.contents().items() if data != objects[key]]
