"""A run that is stopped at any write, and the run after it."""

import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest
from pipeline_lab import (
    DOCUMENT,
    Lab,
    contents,
    directory_lab,
    images,
    memory_lab,
    png,
    shard_names,
    write,
)
from required import some

from larder.errors import DamageError
from larder.jobs.results import RunError
from larder.store.base import Writer
from larder.versions.tags import read_tag
from tests.support.runs import between
from tests.support.stores import RecordingStore, Stop

pytestmark = pytest.mark.exhaustive

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**", "d/**"], "validation": ["c/**"]},
    "shards": {"bytes": 8_000},
    "validate": "decode",
    "cache": {"records": "decoded"},
    "on_bad_sample": "skip",
    "mirror": True,
    "cluster": {"runner": {"workers": 2, "batch_bytes": 12_000}, "copy": {"concurrency": 3}},
}
OTHER_LIMITS = {"runner": {"workers": 1, "batch_bytes": 17_000}, "copy": {"concurrency": 1}}
# Two that are left out: one of several in its shard, one alone in its batch.
OBJECTS = images() | {"a/01.png": b"no image", "b/03.png": b"none either" * 1500}


def latest(lab: Lab) -> str | None:
    with lab.opened_root() as root:
        tag = read_tag(root, "latest")
        return tag.version if tag else None


def begin_like(lab: Lab, other: Lab) -> None:
    """Give a storage in memory what another one holds."""
    with other.opened_root() as theirs, lab.opened_root() as ours:
        for page in theirs.list():
            for info in page:
                ours.put(info.key, theirs.get(info.key))


def stopped(lab: Lab, after: int | None, **fields: Any) -> tuple[DOCUMENT | None, Stop]:
    stop = Stop(after)
    return lab.stopped(stop, **fields), stop


@pytest.fixture
def undisturbed(tmp_path: Path) -> tuple[Lab, DOCUMENT, list[int]]:
    """A bucket prepared in one go, and the writes to stop others after: of copies every fifth."""
    lab = memory_lab(tmp_path, OBJECTS, **FIELDS)
    document, stop = stopped(lab, None)
    assert document is not None
    keys = [key for _, key in stop.writes]
    stops = [at for at, key in enumerate(keys) if at % 5 == 0 or not key.startswith("mirror/")]
    return lab, document, stops


@pytest.mark.exhaustive
def test_a_run_stopped_at_any_write_can_be_continued(tmp_path, undisturbed):
    whole, document, stops = undisturbed
    expected = whole.only()
    copied = []
    for after in sorted({*some(stops), stops[-1]}):
        lab = memory_lab(tmp_path, OBJECTS, **FIELDS)
        cut, stop = stopped(lab, after)
        assert cut is None or not stop.stopped
        assert set(lab.check()) <= {document["version"]}
        # Other limits cut other batches: receipts of both overlap.
        limits = OTHER_LIMITS if after % 2 else FIELDS["cluster"]
        with between():
            again = lab.prepare(cluster=limits)
        found = lab.only()
        assert shard_names(found) == shard_names(expected), f"stopped after {after} writes"
        for same in ("version", "digest", "inputs", "skipped", "cache"):
            assert again[same] == document[same] or again["status"] == "reused"
        assert latest(lab) == document["version"]
        copied.append(again["copied"]["count"])
    assert copied == sorted(copied, reverse=True)
    assert copied[-1] == 0


def test_a_new_version_stopped_at_any_write_leaves_the_old_one(tmp_path, undisturbed):
    """At every moment `latest` names the old or the new version, and both are complete."""
    old, first, stops = undisturbed
    changed = {"a/00.png": png(91), "d/00.png": png(92)}
    second = None
    for after in [1000, *reversed(some(stops[::3], 3))]:
        lab = memory_lab(tmp_path, OBJECTS, **FIELDS)
        begin_like(lab, old)
        write(str(lab.source), changed)
        cut, _ = stopped(lab, after)
        second = second or cut
        assert second is not None, "the first of these runs is not stopped"
        found = set(lab.check())
        assert {first["version"]} <= found <= {first["version"], second["version"]}
        assert latest(lab) in found
        with between():
            again = lab.prepare()
        assert (again["version"], again["digest"]) == (second["version"], second["digest"])
        assert set(lab.check()) == {first["version"], second["version"]}
        assert latest(lab) == second["version"]


@pytest.mark.exhaustive
def test_a_directory_keeps_its_promise_too(tmp_path):
    lab = directory_lab(tmp_path, OBJECTS, **FIELDS)
    document, stop = stopped(lab, None)
    assert document is not None
    expected = shard_names(lab.only())
    for after in some(range(1, len(stop.writes), 8), 3):
        shutil.rmtree(str(lab.storage))
        stopped(lab, after)
        assert set(lab.check()) <= {document["version"]}
        again = lab.prepare()
        assert again["digest"] == document["digest"]
        assert shard_names(lab.only()) == expected


@pytest.mark.parametrize(
    "lost",
    [
        "work/**/*",
        "work/shards/*/*",
        "../../work/mirror/*.*",
        "work/caches/*/*",
        "shards/train/*-000001.tar",
        "caches/*/*.mdb",
        "index/*",
    ],
)
@pytest.mark.parametrize("published", [0, 1, 2])
@pytest.mark.nightly(sample=5)
def test_lost_unfinished_work_is_made_again(tmp_path, lost, published):
    """Before the segment is published, before its cache is, and before the version is."""
    lab = directory_lab(tmp_path, OBJECTS, **FIELDS)
    document, stop = stopped(lab, None)
    assert document is not None
    last = next(at for at, (_, key) in enumerate(stop.writes) if key.endswith("segment.json"))
    last += published
    shutil.rmtree(str(lab.storage))
    stopped(lab, last)
    (segment,) = Path(str(lab.storage), "larder/d/segments").iterdir()
    gone = [path for path in segment.glob(lost) if path.is_file()]
    assert gone
    for path in gone:
        path.unlink()
    hint = ""
    try:
        again = lab.prepare()
    except DamageError as error:  # of a segment that is complete: its files are missed
        hint = error.hint
        (segment / "segment.json").unlink()
        again = lab.prepare()
    assert not hint or (published and "segment.json" in hint)
    assert again["digest"] == document["digest"]
    assert again["skipped"] == document["skipped"] == 2
    lab.check()


@pytest.mark.exhaustive
def test_any_history_leads_to_the_same_content(tmp_path):
    """Whatever changed, and wherever runs were stopped: as if prepared for the first time.

    Where every change packs all samples again, to the byte.
    """
    for seed in some(range(5), 5):
        dice = random.Random(seed)
        objects = dict(OBJECTS)
        lab = memory_lab(tmp_path, objects, **FIELDS)
        for _ in range(5):
            key = dice.choice([*objects, "a/77.png", "d/00.png", "d/00.json"])
            objects[key] = dice.choice([png(dice.randrange(50)), b"{}", OBJECTS["a/01.png"]])
            write(str(lab.source), {key: objects[key]})
            fields = {
                "growth": {"mode": "append" if seed % 2 else "rebuild"},
                "mirror": dice.random() < 0.7,
                "cluster": dice.choice([FIELDS["cluster"], OTHER_LIMITS]),
                "cache": dice.choice([None, {"records": "decoded"}, {"records": "encoded"}]),
            }
            stopped(lab, dice.choice([None, dice.randrange(70)]), **fields)
            lab.check()
        fresh = memory_lab(tmp_path, objects, **FIELDS)
        with between():
            expected = fresh.prepare()
            found = lab.prepare(growth=fields["growth"])
        for same in ("digest", "version", "inputs")[2 if seed % 2 else 0 :]:
            assert found[same] == expected[same], f"seed {seed}"
        assert latest(lab) == found["version"]
        assert contents(lab.newest()) == contents(fresh.only()), f"seed {seed}"


# Two concurrent runs


@pytest.mark.parametrize("mirror", [True, False])
def test_two_runs_at_once_make_one_version(tmp_path, mirror):
    for number in range(3):
        lab = directory_lab(tmp_path / str(number), mirror=mirror)
        barrier = Barrier(4)

        def run(_: int, lab: Lab = lab, barrier: Barrier = barrier) -> DOCUMENT:
            barrier.wait()
            return lab.prepare()

        with ThreadPoolExecutor(4) as pool:
            documents = list(pool.map(run, range(4)))
        published = lab.only()
        assert {document["digest"] for document in documents} == {published.version.digest}
        assert lab.prepare()["status"] == "reused"


@pytest.mark.exhaustive
def test_two_runs_at_once_of_two_states_of_the_source(tmp_path):
    """Each makes a version of its own state, or says that the mirror changed under it."""
    changed = images() | {"a/00.png": png(91), "b/00.png": png(92)}
    lab = directory_lab(tmp_path)
    other = Lab(str(tmp_path / "other"), lab.storage, tmp_path / "out2", lab.fields)
    write(other.source, changed)
    expected = []
    for name, objects in (("1", images()), ("2", changed)):
        fresh = directory_lab(tmp_path / name, objects)
        fresh.prepare()
        expected.append(contents(fresh.only()))
    barrier = Barrier(2)

    def run(one: Lab) -> str:
        barrier.wait()
        try:
            version: str = one.prepare()["version"]
        except RunError as error:
            return ", ".join({failure.code for failure in error.report.failures})
        return version

    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, [lab, other]))
    checked = lab.check()
    for version, whole in zip(found, expected, strict=True):
        assert version == "object.mismatch" or contents(checked[version]) == whole
    assert all(contents(published) in expected for published in checked.values())
    for one, whole in zip((lab, other), expected, strict=True):
        version = one.prepare()["version"]
        assert contents(lab.check()[version]) == whole


class Meddler(RecordingStore):
    """Something that writes to the mirror when the first shard is begun."""

    def writer(self, key: str, **more: Any) -> Writer:
        path = Path(self.inner.url.removeprefix("file://"), "mirror/a/00.png")
        if key.endswith("-000000.tar"):
            path.write_bytes(png(1))
        return super().writer(key, **more)


def test_no_shard_is_made_from_objects_that_were_not_copied(tmp_path):
    lab = directory_lab(tmp_path, mirror=True)
    with between(Meddler), pytest.raises(RunError) as caught:
        lab.prepare()
    (failure,) = caught.value.report.failures
    assert (failure.key, failure.code) == ("a/00.png", "object.mismatch")
    assert "delete it and run again" in failure.message
    assert lab.check() == {}
    document = lab.prepare()
    assert document["copied"]["count"] == 1
    assert lab.only().samples["train"][0].parts["png"] == png(0)


def test_a_sample_too_large_to_be_held_is_read_from_the_mirror(tmp_path):
    """It is streamed: that its mirrored copy has an etag of its own must not matter."""
    large = random.Random(1).randbytes(300_000)
    lab = directory_lab(tmp_path, images() | {"a/00.bin": large}, mirror=True)
    lab.prepare(cluster={"copy": {"memory_bytes": 1024**2}})
    assert lab.only().samples["train"][0].parts["bin"] == large
