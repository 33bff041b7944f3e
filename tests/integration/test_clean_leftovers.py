"""Leftovers of killed runs go with every clean, also if it has no unit to delete."""

from dataclasses import replace

import pytest
from catalog_lab import cleaned
from pipeline_lab import directory_lab, memory_lab

from larder.copy import uploads
from larder.disk import DRAFT_PREFIX
from larder.segments.mirror import PLACE as MIRROR
from larder.store import open_store
from larder.store.base import BucketPrefix, Features
from larder.store.delegate import DelegatingStore
from larder.versions.leases import Claim
from tests.support.runs import between
from tests.support.stores import FaultyStore, Recorder, keys_of, unavailable

RECORD = f"{MIRROR.uploads}0.json"


class UploadingStore(DelegatingStore):
    """Says that the inner store has uploads in parts."""

    @property
    def features(self) -> Features:
        return replace(self.inner.features, place=BucketPrefix("s3", "", "b", ""))


def test_recorded_uploads_stay_while_a_run_is_in_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", -1.0)
    lab = memory_lab(tmp_path)
    with between():
        lab.prepare()
    with lab.opened_root() as root:
        root.put(RECORD, b'{"upload": "u", "object": ["k"]}')
        Claim.of_run([]).take(root)
        with between(UploadingStore):
            cleaned(lab)
        assert RECORD in keys_of(root)


def test_an_upload_with_a_record_stays_also_if_the_record_cannot_be_read(monkeypatch):
    faulty = FaultyStore(open_store("memory://records"))
    store, calls = UploadingStore(faulty), []
    monkeypatch.setattr(store, "abort_uploads", lambda seconds, kept: calls.append(kept))
    faulty.put(RECORD, b'{"upload": "u", "object": ["k"]}')
    records = uploads.UploadRecords(store, MIRROR.uploads)
    records.abort_unrecorded()
    assert calls == [{"u"}]
    faulty.add("get", unavailable(), times=None)
    records.abort_unrecorded()
    records.abort_recorded(1 << 62)
    assert calls == [{"u"}]
    assert keys_of(faulty) == [RECORD]


@pytest.mark.parametrize("plan_only", [False, True])
def test_old_uploads_are_aborted_if_nothing_is_due(tmp_path, monkeypatch, plan_only):
    monkeypatch.setattr(uploads, "UPLOAD_ABANDONED_SECONDS", -1.0)
    lab, recorder = memory_lab(tmp_path), Recorder()
    with between():
        lab.prepare()
    with lab.opened_root() as root:
        root.put(RECORD, b'{"upload": "u", "object": ["k"]}')
        with between(lambda store: UploadingStore(recorder(store))):
            assert cleaned(lab, grace="24h", plan_only=plan_only)["status"] == "current"
        assert bool(recorder.keys("abort_uploads")) != plan_only
        assert (RECORD in keys_of(root)) == plan_only


@pytest.mark.parametrize(("grace", "stays"), [("0h", False), ("24h", True)])
def test_temporary_files_are_removed_without_a_grace_time(tmp_path, grace, stays):
    lab = directory_lab(tmp_path)
    lab.prepare()
    left = lab.folder / "work" / f"{DRAFT_PREFIX}{'0' * 24}"
    left.parent.mkdir(exist_ok=True)
    left.write_bytes(b"x")
    assert cleaned(lab, grace=grace)["status"] == "current"
    assert left.exists() == stays
