"""A complete run with a shard format that differs from tar in every respect."""

from __future__ import annotations

import json
import shutil
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from column_format import registered
from pipeline_lab import Lab, directory_lab, images, opened, write

import larder
from larder.errors import DamageError
from larder.jobs import batch_receipts as due
from larder.jobs.runner import InlineRunner
from larder.pipeline.plan_report import plan_lines
from larder.pipeline.prepare import prepare
from larder.progress import NullProgress, StageTimes
from larder.store.base import Store
from larder.units import format_bytes
from larder.versions.publish import read_segment
from tests.support.checker import Published, check_all
from tests.support.runs import between, forget_manifests
from tests.support.stores import Recorder, Stop, Stopped, StoppingStore

FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"train": ["a/**", "b/**"], "validation": "c/**"},
    "shards": {"format": "columns", "bytes": 600},
    "validate": "decode",
    "cache": {"records": "decoded"},
    "on_bad_sample": "skip",
    "cluster": {"runner": {"workers": 1, "batch_bytes": 1_400}},
}
# The second is left out; of the others each is its own.
OBJECTS = images(each=5) | {"a/01.png": b"no image" * 40}


@pytest.fixture(autouse=True)
def columns(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The format is known, and every shard leaves a receipt."""
    monkeypatch.setattr(due, "RECEIPT_BYTES", 1)
    with registered():
        yield


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path, OBJECTS, **FIELDS)


def contents(published: Published) -> dict[str, dict[str, bytes]]:
    return {
        sample.key: dict(sample.parts) for group in published.samples.values() for sample in group
    }


def digests(lab: Lab) -> dict[str, str]:
    """sha256 of every file of shards by its name, whatever the segment is called."""
    return {path.rpartition("/")[2]: sha256 for path, sha256 in lab.only().shards.items()}


def shard_files(lab: Lab) -> dict[str, int]:
    """Length of every file of shards, by split and name."""
    folders = Path(str(lab.storage)).glob("larder/d/segments/*/shards")
    return {
        path.relative_to(folder).as_posix(): path.stat().st_size
        for folder in folders
        for path in folder.rglob("*.*")
    }


def path_of(lab: Lab, name: str) -> Path:
    (path,) = Path(str(lab.storage)).rglob(name)
    return path


def carried_on(lab: Lab) -> tuple[dict[str, Any], list[str]]:
    """A run, and the files of shards that it wrote."""
    recorder = Recorder()
    with between(recorder):
        document = lab.prepare()
    calls = (call for call in recorder.calls if call.method == "commit")
    return document, [call.key.rpartition("/")[2] for call in calls]


class StopAtSegment(Stop):
    """Stops when all but the documents is written."""

    def write(self, method: str, key: str, call: Callable[[], Any]) -> Any:
        if key.endswith("segment.json") and self.after is None:
            self.after = len(self.writes)
        return super().write(method, key, call)


def cut_off(lab: Lab, stop: Stop) -> Stop:
    forget_manifests()
    with between(partial(StoppingStore, stop=stop)):
        try:
            prepare(lab.settings())
        except Stopped:
            assert stop.stopped
    return stop


def test_a_whole_run(lab: Lab) -> None:
    document = lab.prepare()
    published = lab.only()
    expected: dict[str, dict[str, bytes]] = defaultdict(dict)
    for key, data in OBJECTS.items():
        if key != "a/01.png":
            expected[key[:4]] |= {key[5:]: data, "cls": b"%d" % "abc".index(key[0])}
    assert contents(published) == expected
    files = shard_files(lab)
    count = published.version.splits["train"].shards
    assert {f"train/d-train-00000-of-{count:05d}.{ext}" for ext in ("cols", "rows")} <= set(files)
    assert sum(files.values()) == document["shards"]["bytes"]
    assert len(files) == 2 * document["shards"]["count"]
    with lab.opened_root() as root:
        segment = read_segment(root, published.version.segments[0].id)
        assert segment is not None
        assert segment.shape.format == "columns"


def test_training_gets_the_first_file_of_every_shard(lab: Lab) -> None:
    lab.prepare()
    data = larder.open(f"{lab.storage}/larder/d@latest")
    names = [Path(path).name for path in data.shards("train")]
    assert names == sorted(f"d-train-{n:05d}-of-{len(names):05d}.cols" for n in range(len(names)))
    assert len(names) > 2
    assert all(Path(path).is_file() for path in data.shards("train"))
    with data.cache("train") as cache:
        assert len(cache) == data.splits["train"].samples == 9


def test_other_limits_give_the_same_bytes(tmp_path: Path) -> None:
    """Workers, batches, and whether samples are streamed."""
    one = directory_lab(tmp_path / "1", OBJECTS, **FIELDS)
    cluster = {"runner": {"workers": 2, "batch_bytes": 1}, "copy": {"memory_bytes": "1 MiB"}}
    two = directory_lab(tmp_path / "2", OBJECTS, **{**FIELDS, "cluster": cluster, "mirror": False})
    assert one.prepare()["digest"] == two.prepare()["digest"]
    assert digests(one) == digests(two)


class Bucket:
    """A storage in memory: quick, and with etags that follow from the bytes."""

    def __init__(self, folder: Path) -> None:
        self.name = uuid.uuid4().hex
        source = f"memory://{self.name}-source"
        write(source, OBJECTS)
        self.lab = Lab(source, f"s3://memory-{self.name}", folder / self.name, FIELDS)

    def check(self) -> dict[str, Published]:
        with opened(f"memory://{self.name}/larder/d") as root:
            return check_all(root)


@pytest.mark.exhaustive
def test_a_run_killed_at_any_write_can_be_continued(tmp_path: Path) -> None:
    bucket = Bucket(tmp_path)
    writes = cut_off(bucket.lab, Stop()).writes
    (expected,) = bucket.check().values()
    assert len(writes) > 50
    for after in range(1, len(writes) - 5, 5):  # a slow machine leaves more receipts
        bucket = Bucket(tmp_path)
        assert cut_off(bucket.lab, Stop(after)).stopped
        bucket.check()
        with between():
            bucket.lab.prepare()
        (published,) = bucket.check().values()
        assert published.shards == expected.shards
        assert published.version.digest == expected.version.digest


@pytest.mark.parametrize("ext", ["cols", "rows"])
@pytest.mark.parametrize("lost", [False, True])
def test_a_shard_with_one_altered_file_is_made_again(lab: Lab, ext: str, lost: bool) -> None:
    expected = lab.prepare()["digest"]
    shutil.rmtree(str(lab.storage))
    cut_off(lab, StopAtSegment())
    name = "d-train-00001-of-00005"
    path = path_of(lab, f"{name}.{ext}")
    if lost:
        path.unlink()
    else:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)
    document, written = carried_on(lab)
    assert document["digest"] == expected
    assert Counter(written) == Counter([f"{name}.cols", f"{name}.rows"])
    assert document["shards"]["reused"] == document["shards"]["count"] - 1
    lab.check()


def test_a_published_shard_that_lacks_a_file_is_named(lab: Lab) -> None:
    document = lab.prepare()
    assert document["status"] == "built"
    path = path_of(lab, "d-validation-00000-of-*.rows")
    path.unlink()
    with pytest.raises(DamageError) as caught:
        lab.prepare()
    assert caught.value.code == "damage.size"
    assert caught.value.where.endswith(path.name)


def test_the_cache_is_not_built_from_a_shard_that_differs_from_its_index(lab: Lab) -> None:
    class Shifted:
        """A storage in which two parts of a shard are not cut where they were."""

        def __init__(self, store: Store) -> None:
            self._store = store

        def __getattr__(self, name: str) -> Any:
            return getattr(self._store, name)

        def get(self, key: str, **options: Any) -> bytes:
            data: bytes = self._store.get(key, **options)
            if not (key.endswith(".rows") and "validation" in key):
                return data
            rows = json.loads(data)
            rows["columns"]["png"][1][0] -= 1
            return json.dumps(rows).encode()

    with between(Shifted), pytest.raises(DamageError) as caught:  # type: ignore[arg-type]
        lab.prepare()
    assert caught.value.code == "damage.record"
    assert caught.value.where.endswith(".cols: c/00.png")
    assert lab.check() == {}


def test_planned_bytes_are_reported_if_sizes_are_estimates(lab: Lab) -> None:
    planned = {}

    class Listener(NullProgress):
        def start(
            self, stage: str, *, objects: int | None = None, bytes: int | None = None
        ) -> None:
            planned[stage] = objects, bytes

    times = StageTimes(Listener())
    document = prepare(lab.settings(), InlineRunner(1, times))
    done = times.stages()["shard"]
    assert planned["shard"] == (done["objects"], done["bytes"])
    assert done["bytes"] == sum(map(len, OBJECTS.values())) + len(OBJECTS) - 3  # labels of a digit
    assert done["bytes"] != document["shards"]["bytes"]


def test_a_plan_says_that_it_estimates(lab: Lab) -> None:
    document = lab.plan()
    lines = "\n".join(plan_lines(document))
    assert f"8 shards, about {format_bytes(document['shards']['bytes'])}, 15 samples\n" in lines
    exact = {**document, "shards": {**document["shards"], "exact": True}}
    assert "shards, about" not in "\n".join(plan_lines(exact))


def test_count_min_goes_by_the_estimates(tmp_path: Path) -> None:
    shards = {"format": "columns", "bytes": 10**6, "count_min": 4}
    lab = directory_lab(tmp_path, OBJECTS, **{**FIELDS, "shards": shards})
    lab.prepare()
    splits = lab.only().version.splits
    assert all(4 <= split.shards < 8 for split in splits.values())


def test_a_shard_without_samples_leaves_no_file(tmp_path: Path) -> None:
    """The names of the others count it: they were given before anything was read."""
    objects = {f"a/{n}.png": b"no image" * 90 if n == 1 else images()["a/00.png"] for n in range(3)}
    fields = {"splits": {"train": "**"}, "shards": {"format": "columns", "bytes": 300}}
    lab = directory_lab(tmp_path, objects, **{**FIELDS, **fields})
    lab.prepare()
    names = {f"train/d-train-0000{n}-of-00003.{ext}" for n in (0, 2) for ext in ("cols", "rows")}
    assert set(shard_files(lab)) == names
    patterns = lab.only().version.splits["train"].patterns
    assert [Path(pattern).name for pattern in patterns] == [
        "d-train-00000-of-00003.cols",
        "d-train-00002-of-00003.cols",
    ]
    again, written = carried_on(lab)
    assert (again["status"], written) == ("reused", [])
