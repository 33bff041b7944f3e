import pytest

from larder.budgets import ByteBudget
from larder.config.urls import Access
from larder.copy import threads
from larder.copy.allowance import CopyLimits
from larder.copy.engine import _Batch
from larder.copy.threads import Pace
from larder.progress import NullProgress
from larder.store.base import ObjectInfo
from larder.store.interrupt import Interrupt
from larder.store.local.store import LocalStore
from larder.store.s3 import S3Store


@pytest.mark.parametrize(("size_bytes", "expected"), [(100_000, 2), (100_000_000, 8)])
def test_threads_that_send_requests_ahead_are_as_many_as_cores(
    size_bytes, expected, tmp_path, monkeypatch
):
    """Four waited for the lock on two cores; and large objects, of which each is one request, were
    copied with no more."""
    monkeypatch.setattr(threads, "usable_cores", lambda: 2)
    source = S3Store("bucket", access=Access(endpoint="http://127.0.0.1:1"))
    limits = CopyLimits(concurrency=32, budget=ByteBudget(1 << 27))
    progress, nothing = NullProgress(), lambda _: None
    batch = _Batch(
        source, LocalStore(tmp_path), "", limits, progress, nothing, nothing, Interrupt()
    )
    pace = Pace.begin(limits.concurrency, ahead=batch.takes_several)
    objects = [ObjectInfo(f"{number}", size_bytes, f"{number:032x}", 0) for number in range(32)]
    next(batch.steps(objects, pace))
    assert pace.count == expected


@pytest.mark.parametrize(("processes", "requests", "expected"), [(1, 256, 8), (16, 16, 2)])
def test_processes_that_share_sixteen_cores_begin_with_all_their_requests(
    processes, requests, expected, monkeypatch
):
    """Each began with one thread, so a distant server got half of the requests."""
    monkeypatch.setattr(threads, "processes_together", lambda: processes)
    monkeypatch.setattr(threads, "usable_cores", lambda: 16 // processes)
    assert Pace.begin(requests, ahead=True).count == expected
