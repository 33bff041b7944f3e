"""Repeated runs: what did not change is not done again, and the result stays the same."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, memory_lab, png, shard_names, write
from required import at_push

from larder.jobs.step_runner import InlineRunner
from larder.pipeline.preparing import prepare, refresh
from larder.pipeline.run_report import run_lines, status_line
from larder.progress import StageTimes
from larder.store.base import Store
from tests.support.runs import between
from tests.support.stores import EncryptedStore, Recorder, RecordingStore


def reads(recorder: Recorder, url: str) -> list[str]:
    stores = [store for store in recorder.stores if store.url.startswith(url)]
    calls = [call for store in stores for call in store.calls]
    return [call.key for call in calls if call.method in ("get", "open")]


def files(folder: Path) -> dict[str, tuple[int, int, int]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.stat()
        found[str(path)] = (status.st_size, status.st_mtime_ns, status.st_ino)
    return found


def touch(lab: Lab) -> None:
    for path in Path(str(lab.source)).rglob("*.*"):
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))


# Nothing changed


@pytest.mark.parametrize("mirror", [True, *at_push(False)])
def test_an_unchanged_run_writes_nothing(tmp_path, mirror):
    lab = directory_lab(tmp_path, mirror=mirror)
    first = lab.prepare()
    before = files(tmp_path)
    second, recorder = lab.recorded()
    assert files(tmp_path) == before
    assert recorder.writes == []
    assert reads(recorder, f"file://{lab.source}") == []
    assert second["status"] == "reused"
    assert second["copied"] == {"count": 0, "bytes": 0}
    assert second["segments"] == {"total": 1, "new": 0, "omitted": 0}
    assert second["shards"]["reused"] == second["shards"]["count"]
    changing = ("status", "reason", "published", "copied", "segments", "shards", "growth")
    for same in set(first) - {*changing, "seconds", "stages", "warnings"}:
        assert second[same] == first[same], same


# Only times changed


def test_touched_files_are_hashed_once_and_the_version_stays(tmp_path):
    """Those that are no samples, too."""
    lab = directory_lab(
        tmp_path,
        images() | {"labels.txt": b"c/00 x\nc/01 x\nc/02 y\nc/03 y\n", ".hidden": b"1"},
        mirror=True,
        on_bad_key="skip",
        splits={"train": ["a/**", "b/**"], "validation": ["c/**"]},
        labels={"from": "folder", "files": {"validation": "labels.txt"}},
    )
    first = lab.prepare()
    assert first["skipped"] == 1
    for path in Path(lab.source).rglob("*.*"):
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1_000_000))
    second, recorder = lab.recorded()
    assert (second["status"], second["version"]) == ("reused", first["version"])
    written = {call.key for call in recorder.writes if not call.key.startswith("leases/")}
    assert written == {"tags/latest.json"}
    read = reads(recorder, f"file://{lab.source}")
    assert sorted(key for key in read if key in images()) == sorted(images())
    before = files(tmp_path)
    third, recorder = lab.recorded()
    assert (third["status"], third["version"]) == ("reused", first["version"])
    assert reads(recorder, f"file://{lab.source}") == ["labels.txt"]
    assert recorder.writes == []
    assert files(tmp_path) == before
    assert set(lab.check()) == {first["version"]}


def test_a_touched_image_that_was_left_out_is_looked_at_again(tmp_path):
    broken = b"no image" + bytes(len(png(3)) - 8)
    lab = directory_lab(tmp_path, images() | {"a/03.png": broken}, on_bad_sample="skip")
    first = lab.prepare()
    assert (first["shards"]["samples"], first["skipped"]) == (11, 1)
    touch(lab)
    second = lab.prepare()
    assert (second["status"], second["version"]) == ("reused", first["version"])
    write(lab.source, {"a/03.png": png(3)})
    third = lab.prepare()
    assert (third["shards"]["samples"], third["skipped"]) == (12, 0)


# Something changed


@pytest.mark.push
def test_a_copy_that_was_tampered_with_is_made_again(tmp_path):
    lab = directory_lab(tmp_path, mirror=True)
    lab.prepare()
    mirrored = Path(str(lab.storage), "larder/d/mirror/a/00.png")
    mirrored.write_bytes(png(1))
    forget_versions(lab)
    again = lab.prepare(shards={})
    assert again["copied"]["count"] == 1
    assert mirrored.read_bytes() == png(0)
    mirrored.unlink()
    forget_versions(lab)
    assert lab.prepare(shards={"bytes": 9_000})["copied"]["count"] == 1
    lab.check()


def forget_versions(lab: Lab) -> None:
    """Leave the mirror alone: what is in shards is packed again from these."""
    for name in ("segments", "versions", "tags"):
        shutil.rmtree(Path(str(lab.storage), "larder/d", name))


# The same everywhere


def test_the_same_files_give_the_same_content_everywhere(tmp_path):
    plain = directory_lab(tmp_path / "1")
    other = directory_lab(tmp_path / "2", dict(reversed(images().items())), mirror=False)
    touch(other)
    bucket = memory_lab(tmp_path / "3", **plain.fields)
    limits = {
        "runner": {"workers": 5, "batch_bytes": 4_000},
        "copy": {"concurrency": 1, "memory_bytes": 1024**2},
    }
    documents = [plain.prepare(), other.prepare(cluster=limits)]
    with between():
        documents.append(bucket.prepare(cluster={"runner": {"workers": 1}}))
        published = [plain.only(), other.only(), bucket.only()]
    assert len({document["digest"] for document in documents}) == 1
    one, two, three = map(shard_names, published)
    assert one == two == three
    assert len(one) == 6


# A bucket whose etags look like an MD5 but are not: SSE-KMS

IN_BATCHES: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 8_000},
    "cache": {},
    "cluster": {"runner": {"workers": 2, "batch_bytes": 1_000}, "copy": {"concurrency": 8}},
}


@pytest.mark.parametrize("mirror", [True, False])
def test_only_one_object_is_read_twice(tmp_path, mirror):
    objects = images()
    lab = memory_lab(tmp_path, objects, **IN_BATCHES, mirror=mirror)
    sources: list[RecordingStore] = []

    def wrap(store: Store) -> Store:
        if store.url != f"{lab.source}/":
            return store
        sources.append(RecordingStore(EncryptedStore(store)))
        return sources[-1]

    with between(wrap):
        document = lab.prepare()
    read_bytes = sum(store.moved_bytes("get") + store.moved_bytes("open") for store in sources)
    listed_bytes = sum(map(len, objects.values()))
    largest_bytes = max(map(len, objects.values()))
    assert listed_bytes < read_bytes <= listed_bytes + largest_bytes
    assert document["digest"] == directory_lab(tmp_path, **IN_BATCHES).prepare()["digest"]
    lab.check()


def test_a_reused_version_tells_since_when_it_exists(tmp_path):
    lab = directory_lab(tmp_path, images("ab", 2), cache=None)
    first = lab.prepare()
    version = first["version"]
    (document,) = lab.folder.glob("versions/*/version.json")
    os.utime(document, (1_700_000_000, 1_700_000_000))
    again = lab.prepare()
    assert again["published"] == "2023-11-14T22:13:20Z"
    expected = f"{again['dataset']} reused: version {version} (published 2023-11-14T22:13:20Z)"
    assert run_lines(again)[0].startswith(expected)
    assert status_line(again) == expected
    assert "published" not in run_lines(first)[0]
    os.utime(document, (0, 0))  # as where the store dates nothing
    assert status_line(lab.prepare()) == f"{again['dataset']} reused: version {version}"


class Claiming(InlineRunner):
    def __init__(self, versions: list[str]) -> None:
        super().__init__(1, StageTimes())
        self.claims = versions

    @contextmanager
    def claim(self, dataset: str) -> Iterator[None]:
        self.claims.append(f"{dataset} begins")
        yield
        self.claims.append(f"{dataset} ends")


def test_each_dataset_is_claimed_for_itself(tmp_path):
    claims: list[str] = []
    lab = directory_lab(tmp_path, images("ab", 3))
    settings = lab.settings()

    def load() -> object:
        claims.append("loaded")
        return settings

    refresh({"one": load, "two": load}, Claiming(claims))
    assert claims == ["loaded", "d begins", "d ends"] * 2
    lab.only()


def test_a_plan_claims_nothing(tmp_path):
    claims: list[str] = []
    lab = directory_lab(tmp_path, images("ab", 3))
    prepare(lab.settings(), Claiming(claims), plan_only=True)
    assert claims == []
