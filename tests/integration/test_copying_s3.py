"""Copies between real S3 servers and directories."""

import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from copy_lab import PLACE, CopyLab, leave_upload, uploads_left
from costs_lab import blob
from pipeline_lab import opened
from required import at_night

from larder.copy import uploads
from larder.copy.copying import copy
from larder.errors import FatalError, StoreError
from larder.jobs.step_runner import InlineRunner
from larder.progress import StageTimes
from larder.store.interrupt import interrupted_by
from larder.store.s3.multipart import S3Upload
from tests.support.servers import S3Server

pytestmark = pytest.mark.push

LARGE_BYTES = 20 << 20
"""Of an object that is uploaded in parts."""
OBJECTS = {
    f"{name}/{number:02} é+.bin": blob(f"{name}{number}", 1_000)
    for name in "ab"
    for number in range(8)
} | {"empty": b"", "large.bin": blob("large", LARGE_BYTES)}


@pytest.fixture
def server(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> S3Server:
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    server.create_bucket("copying")
    with opened("s3://copying/beside") as store:  # rclone lists uploads where there has been one
        leave_upload(store, "kept", recorded=False)
    return server


def lab_to_bucket(source: Path | str) -> CopyLab:
    return CopyLab(str(source), f"s3://copying/{uuid.uuid4().hex[:12]}/here", {})


@pytest.mark.parametrize("moment", ["send", "_complete", *at_night("_begun")])
@pytest.mark.parametrize("how", ["interrupt", "refusal"])
def test_a_copy_that_is_stopped_leaves_no_upload(server, tmp_path, monkeypatch, moment, how):
    """An upload whose completion was stopped was left behind, and paid for."""
    lab, stop = lab_to_bucket(tmp_path / "up"), threading.Event()
    lab.add({f"{n}.bin": blob(f"large{n}", LARGE_BYTES) for n in range(3)})
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
    runner = InlineRunner(1, StageTimes(), stop if how == "interrupt" else None)
    with pytest.raises(FatalError if how == "interrupt" else StoreError):
        copy(lab.settings(settings=["runner.workers=1"]), runner)
    assert stop.is_set()
    assert uploads_left(lab.storage, server) == []


@pytest.mark.parametrize("days", [0, 1])
def test_only_uploads_of_our_own_records_are_aborted_after_a_day(
    server, tmp_path, monkeypatch, days
):
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", 86_400.0 * (1 - days) - 60)
    lab = lab_to_bucket(tmp_path / "source")
    lab.add(OBJECTS)
    with opened(lab.storage) as store:
        for key in ("ours", "theirs"):
            leave_upload(store, key, recorded=key == "ours")
        store.put(f"{PLACE.uploads}damaged.json", b"{")
    assert lab.copy()["copied"]["count"] == len(OBJECTS)
    assert uploads_left(lab.storage, server) == (["theirs"] if days else ["ours", "theirs"])
    records = [key for key in lab.own() if key.startswith(PLACE.uploads)]
    assert len(records) == 2 * (not days)
