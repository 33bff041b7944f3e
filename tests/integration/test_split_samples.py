"""Samples by number: in every format, of versions that grew, from a directory and from a bucket."""

import errno
import gc
import multiprocessing
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_lab import Lab, directory_lab
from required import at_night, at_push

import larder
from larder import Choice, Reading
from larder.errors import DamageError, LarderError, NotFoundError, RetryableError
from larder.readers import segment
from larder.readers.access import DatasetAccess
from larder.readers.data import Data
from larder.readers.split import SplitSamples
from larder.samples.indexed import Sample
from larder.store.delegate import DelegatingStore
from tests.support.errors import larder_error
from tests.support.servers import S3Server
from tests.support.stores import Fail, FaultyStore, FlipBit, unavailable

SPLITS = {"train": ["a/**", "b/**"], "validation": "c/**"}
GONE = ("a/03.bin", "b/05.bin", "c/00.bin")
NEW = {"a/zz.bin": b"new".ljust(900), "b/01.bin": b"changed".ljust(900)}
FIELDS: dict[str, Any] = {
    "splits": SPLITS,
    "validate": "none",
    "cache": None,
    "shards": {"samples_per_shard": 3},
    "growth": {"removals": "omit"},
}


@pytest.fixture(autouse=True, params=[0, 1 << 30], ids=["each part", "in pieces"])
def exact_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of files are read one by one, or cut out of pieces."""
    monkeypatch.setattr(segment, "_EXACT_BYTES", request.param)


def blobs() -> dict[str, bytes]:
    return {
        f"{name}/{number:02}.bin": random.Random(f"{name}{number}").randbytes(900)
        for name in "abc"
        for number in range(8)
    }


def grown(folder: Path, **fields: Any) -> Lab:
    """Of two segments, the first of which has samples that the version omits."""
    lab = directory_lab(folder, blobs(), **{**FIELDS, **fields})
    lab.prepare()
    lab.remove(*GONE)
    lab.add(NEW)
    lab.prepare()
    return lab


def expected(lab: Lab, split: str) -> list[Sample]:
    return [Sample(one.key, one.label, one.parts) for one in lab.newest().samples[split]]


def data_of(lab: Lab) -> Data:
    return larder.open(f"{lab.storage}/larder/d")


@pytest.mark.parametrize(
    "name",
    ["webdataset", "parquet", *at_push("tfrecord", "records"), *at_night("recordio", "batches")],
)
def test_by_number_in_every_format(tmp_path, name):
    lab = grown(tmp_path, shards={**FIELDS["shards"], "format": name})
    data = data_of(lab)
    assert data.splits["train"].omitted
    for split in SPLITS:
        wanted = expected(lab, split)
        samples = data.samples_of(split)
        count = len(wanted)
        assert len(samples) == count
        assert list(samples) == list(data.samples(split)) == wanted
        numbers = random.Random(7).choices(range(count), k=3 * count)
        assert samples.batch(numbers) == [wanted[number] for number in numbers]
        assert samples.batch(np.arange(count)[::-1]) == wanted[::-1]
        assert [samples[0], samples[-1]] == [wanted[0], wanted[-1]]
        assert samples[1:-1:2] == wanted[1:-1:2]
        sizes = [sum(map(len, sample.parts.values())) for sample in wanted]
        assert samples.stored_bytes([-1, 0, 0]).tolist() == [sizes[-1], sizes[0], sizes[0]]
        shards = samples.shard_samples
        assert (shards.sum(), len(shards)) == (count, data.splits[split].shards)
        assert shards.min() > 0
        assert samples.has_shards_local


@pytest.mark.parametrize("name", ["webdataset", "parquet", *at_push("tfrecord")])
def test_parts_that_nobody_asks_for_are_not_read(tmp_path, name):
    large = {f"a/{n}.bin": bytes([n]) * 50_000 for n in range(6)}
    small = {f"a/{n}.txt": b"%d" % n for n in range(6)}
    shards = {"format": name, "samples_per_shard": 3}
    lab = directory_lab(
        tmp_path, large | small, **{**FIELDS, "shards": shards, "splits": {"train": "**"}}
    )
    lab.prepare()
    for shard in data_of(lab).shards("train"):  # damage that is noticed where it is read
        content = Path(shard).read_bytes()
        for n in range(6):
            content = content.replace(bytes([n]) * 9_000, b"?" * 9_000)
        Path(shard).write_bytes(content)
    data = data_of(lab)
    samples = data.samples_of("train")
    with pytest.raises(DamageError):
        samples.batch([0, 5])
    expected = [{"txt": b"%d" % n} for n in range(6)]
    assert [sample.parts for sample in samples.batch(range(6), parts=["txt"])] == expected
    assert samples.stored_bytes([5, 0], parts=["txt", "none"]).tolist() == [1, 1]
    for check in ("always", "once"):
        reading = larder.Reading(check=check)
        loader = data.loader("train", batch_size=4, columns=["txt", "key"], reading=reading)
        for _ in range(2):
            batches = list(loader)
            assert [text for batch in batches for text in batch["txt"]] == [*small.values()]
            assert list(batches[0]) == ["txt", "key"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return grown(tmp_path_factory.mktemp("lab"))


def test_samples_leave_no_descriptors_open(lab):
    data, names = data_of(lab), []
    gc.collect()  # what the errors of other tests hold
    gc.disable()
    try:
        assert len(list(data.samples("train"))) > 0
        for descriptor in Path("/proc/self/fd").iterdir():
            with suppress(FileNotFoundError):  # threads of other tests may close theirs
                names.append(os.readlink(descriptor))
    finally:
        gc.enable()
    assert not [name for name in names if Path(name).is_relative_to(lab.folder)]


def test_a_split_or_a_check_that_does_not_exist_is_refused(lab):
    with larder_error("version.split"):
        data_of(lab).samples_of("nothing")
    with larder_error("config.invalid_value", "check"):
        data_of(lab).samples_of("train", check="sometimes")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        data_of(lab).samples_of("train").batch([True])


def numbered(samples: SplitSamples) -> list[Sample]:
    return samples.batch(range(len(samples)))


@pytest.mark.parametrize("method", ["fork", *at_push("spawn"), *at_night("forkserver")])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_in_workers_of_any_kind_also_after_the_parent_has_read(lab, method):
    samples = data_of(lab).samples_of("train")
    wanted = numbered(samples)
    with multiprocessing.get_context(method).Pool(2) as pool:
        assert pool.map(numbered, [samples] * 3) == [wanted] * 3


def test_by_many_threads(lab):
    samples = data_of(lab).samples_of("train")
    wanted = expected(lab, "train")
    with ThreadPoolExecutor(8) as pool:
        assert all(found == wanted for found in pool.map(lambda _: numbered(samples), range(40)))


@pytest.mark.parametrize(
    ("check", "found"), [("always", True), *at_push(("once", False), ("never", False))]
)
def test_a_part_is_compared_as_asked(tmp_path, check, found):
    lab = grown(tmp_path)
    samples = data_of(lab).samples_of("train", check=check)
    before = numbered(samples)
    other = pickle.loads(pickle.dumps(samples))
    path = lab.files("segments/*/shards/train/*.tar")[0]
    modified_ns, data = path.stat().st_mtime_ns, bytearray(path.read_bytes())
    data[700] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(modified_ns, modified_ns))  # as if by its disk
    if found:
        with larder_error("damage.record") as caught:
            numbered(samples)
        assert str(path) in caught.value.where
    else:
        assert numbered(samples) != before
    if check == "once":
        with pytest.raises(DamageError):
            numbered(other)


def test_a_shard_that_is_cut_short_or_gone_is_damage(tmp_path):
    lab = grown(tmp_path)
    path = lab.files("segments/*/shards/train/*.tar")[0]
    content = path.read_bytes()
    for left in (len(content) // 2, 0):
        os.truncate(path, left)
        with larder_error("damage.digest"):
            numbered(data_of(lab).samples_of("train"))
    path.unlink()
    with larder_error("object.missing"):
        numbered(data_of(lab).samples_of("train"))
    os.mkfifo(path)
    with larder_error("object.missing"):
        numbered(data_of(lab).samples_of("train"))


def test_what_a_store_answers_wrongly_once_is_read_again(lab, monkeypatch):
    monkeypatch.setattr(segment, "_EXACT_BYTES", 1 << 30)  # else the files are read by path
    samples = data_of(lab).samples_of("train")
    before = numbered(samples)
    store, segments, starts = samples._parts
    faulty = FaultyStore(store)
    samples._loaded = faulty, segments, starts
    for effect in (FlipBit(800), Fail(NotFoundError("object.missing", "the store answers 404"))):
        faulty.add("open", effect)
        assert numbered(samples) == before
        faulty.add("open", effect, times=None)
        with pytest.raises(LarderError):
            numbered(samples)
        faulty.clear()


@pytest.mark.parametrize(
    ("wrong", "check"),
    [("flipped", "always"), ("cut", "never"), (errno.EIO, "never"), (errno.ESTALE, "never")],
)
def test_what_a_disk_answers_wrongly_once_is_read_again(lab, monkeypatch, wrong, check):
    samples = data_of(lab).samples_of("train", check=check)
    before, pread, faults = numbered(samples), os.pread, [wrong]

    def answer(file: int, *arguments: int) -> bytes:
        data = pread(file, *arguments)
        if os.readlink(f"/proc/self/fd/{file}").endswith(".tar"):
            with suppress(IndexError):  # another thread had the fault
                fault = faults.pop()
                if isinstance(fault, int):
                    raise OSError(fault, os.strerror(fault))
                return data[:-1] if fault == "cut" else bytes([data[0] ^ 1]) + data[1:]
        return data

    monkeypatch.setattr(os, "pread", answer)
    assert numbered(samples) == before
    assert not faults


@pytest.mark.parametrize("check", ["once", "never"])
def test_a_shard_that_was_replaced_since_is_refused_where_its_parts_are_not_compared(
    tmp_path, check
):
    lab = grown(tmp_path)
    samples = data_of(lab).samples_of("train", check=check)
    numbered(samples)
    os.utime(lab.files("segments/*/shards/train/*.tar")[0])
    with larder_error("damage.digest"):
        numbered(samples)


@pytest.mark.push
def test_a_shard_that_was_restored_is_read_where_its_parts_are_compared(tmp_path):
    lab = grown(tmp_path)
    samples = data_of(lab).samples_of("train")
    before = numbered(samples)
    for path in lab.files("segments/*/shards/train/*.tar"):
        os.utime(path)
    assert numbered(samples) == before


@pytest.fixture
def bucket(s3_env: S3Server, tmp_path: Path) -> Lab:
    name = f"samples-{os.getpid()}-{tmp_path.name[-20:].replace('_', '-')}"
    s3_env.create_bucket(name)
    return replace(directory_lab(tmp_path, blobs(), **FIELDS), storage=f"s3://{name}/here")


class Silent(DelegatingStore):
    def around(self, method: str, key: str, call: Any, **options: Any) -> Any:
        raise unavailable().error


@pytest.mark.push
def test_a_version_whose_shards_are_kept_needs_no_server(tmp_path, bucket, monkeypatch):
    bucket.prepare()
    bucket.remove(*GONE)
    address = f"{bucket.storage}/larder/d@{bucket.prepare()['version']}"
    keep = tmp_path / "keep"
    data = larder.open(address)
    wanted = list(data.samples_of("train", keep=keep))
    store = DatasetAccess.store
    monkeypatch.setattr(DatasetAccess, "store", lambda access: Silent(store(access)))
    assert list(data.samples_of("train", keep=keep)) == wanted
    loader = data.loader(
        "train", batch_size=4, choose=Choice({"key": "a/*"}), reading=Reading(keep=keep)
    )
    assert [key for batch in loader for key in batch["key"]] == [
        sample.key for sample in wanted if sample.key.startswith("a/")
    ]
    with pytest.raises(RetryableError):
        list(data.samples_of("validation", keep=keep))
    with pytest.raises(RetryableError):
        larder.open(address)


@pytest.mark.push
def test_from_a_bucket(tmp_path, bucket, monkeypatch):
    bucket.prepare()
    bucket.remove(*GONE)
    bucket.add(NEW)
    bucket.prepare()
    data = larder.open(f"{bucket.storage}/larder/d", cache_dir=tmp_path / "cache")
    samples = data.samples_of("train")
    assert not samples.has_shards_local
    wanted = expected(bucket, "train")
    numbers = random.Random(7).choices(range(len(wanted)), k=90)
    assert samples.batch(numbers) == [wanted[number] for number in numbers]
    assert not list((tmp_path / "cache").glob("*.npz"))
    monkeypatch.setattr("larder.versions.index._FEW_BLOCKS", 0)
    other = data.samples_of("train")
    assert numbered(other) == wanted
    assert len(list((tmp_path / "cache").glob("*.npz"))) == 2, "of two segments"
