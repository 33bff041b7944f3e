"""Jobs of SageMaker: what preparing emits, laid out as the service does, is what `larder` reads."""

import json
import os
import random
import struct
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, images, png, write
from required import at_push
from ruamel.yaml import YAML
from verify_lab import verified

import larder
from larder.errors import DamageError
from larder.pipeline.configs import emit
from larder.readers.data import Data
from larder.store import open_store
from larder.store.base import Store
from tests.support.errors import larder_error
from tests.support.runs import between

TEMPLATE = YAML(typ="safe").load(
    Path(__file__).parents[2] / "configs/experiments/sagemaker/default.yaml"
)
FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "splits": {"training": ["a/**", "b/**"], "validation": "c/**"},
    "shards": {"bytes": 9_000},
}


def lab_of(folder: Path, delivery: str, consumer: dict[str, Any] | None = None, **more: Any) -> Lab:
    """A storage in memory, as a bucket with a space in its prefix."""
    source = folder / "source"
    write(source, more.pop("objects", images("abc", each=8)))
    return Lab(
        str(source),
        f"s3://memory-{folder.name.replace('_', '-')[-40:]}/team data",
        folder / "out",
        {
            **FIELDS,
            "experiment": {"delivery": delivery},
            "cluster": {"consumer": {"kind": "sagemaker", **(consumer or {})}},
            "template": TEMPLATE,
            **more,
        },
    )


def prepared(lab: Lab) -> dict[str, Any]:
    with between():
        (path,) = lab.prepare()["configs"]
    request: dict[str, Any] = json.loads(Path(path).read_text())
    return request


def facts(found: Iterable[Any]) -> list[Any]:
    return [(sample.key, sample.label, dict(sample.parts)) for sample in found]


def published(lab: Lab) -> dict[str, list[Any]]:
    with between():
        return {split: facts(found) for split, found in lab.newest().samples.items()}


def bucket(lab: Lab) -> Store:
    return open_store(str(lab.storage).replace("s3://memory-", "memory://"))


def objects(
    lab: Lab, source: dict[str, Any], *, whole_keys: bool = False
) -> Iterator[tuple[str, bytes]]:
    """The objects of a channel: their paths in it, and their bytes, in the service's order."""
    store, base = bucket(lab), f"{lab.storage}/"
    key = source["S3Uri"].removeprefix(base)
    if source["S3DataType"] == "S3Prefix":
        for page in store.list(key):
            for info in page:
                yield info.key.removeprefix(key), bytes(store.get(info.key))
    elif source["S3DataType"] == "ManifestFile":
        head, *names = json.loads(bytes(store.get(key)))
        prefix = head["prefix"].removeprefix(base)
        for name in names:
            yield prefix * whole_keys + name, bytes(store.get(prefix + name))
    else:
        for line in bytes(store.get(key)).splitlines():
            (url,) = (json.loads(line)[name] for name in source["AttributeNames"])
            yield url, bytes(store.get(url.removeprefix(base)))


def lay_out(
    lab: Lab, request: dict[str, Any], job: Path, *, whole_keys: bool = False
) -> dict[str, bytes]:
    """What the service does: files of file modes; returned are the bytes of pipes by channel.

    It may put the files of manifests at their whole keys.
    """
    streams, config = {}, {}
    for channel in request["InputDataConfig"]:
        name, source = channel["ChannelName"], channel["DataSource"]["S3DataSource"]
        wrapper = channel.get("RecordWrapperType", "None")
        config[name] = {
            "TrainingInputMode": channel["InputMode"],
            "S3DistributionType": source["S3DataDistributionType"],
            "RecordWrapperType": wrapper,
        }
        if channel["InputMode"] == "Pipe":
            bodies = [body for _, body in objects(lab, source)]
            wrap = record if wrapper == "RecordIO" else bytes
            streams[name] = b"".join(map(wrap, bodies))
            continue
        for path, body in objects(lab, source, whole_keys=whole_keys):
            target = job / "data" / name / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(body)
    (job / "config").mkdir(parents=True)
    (job / "config" / "inputdataconfig.json").write_text(json.dumps(config))
    return streams


def record(data: bytes) -> bytes:
    """As the service wraps an object, which has no magic number here."""
    return struct.pack("<II", 0xCED7_230A, len(data)) + data + bytes(-len(data) % 4)


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith(("SM_", "LARDER_LOCATION"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SM_INPUT_DIR", str(tmp_path / "job"))
    return tmp_path / "job"


def samples(data: Data) -> dict[str, list[Any]]:
    return {split: facts(data.samples(split)) for split in data.splits}


@pytest.mark.parametrize(
    ("delivery", "format_"),
    [
        ("file", "webdataset"),
        ("fast_file", "parquet"),
        *at_push(("file", "parquet"), ("fast_file", "webdataset")),
    ],
)
def test_a_job_reads_the_version_of_its_config(delivery, format_, tmp_path, job):
    lab = lab_of(tmp_path, delivery, shards={"bytes": 9_000, "format": format_})
    lay_out(lab, prepared(lab), job)
    data = larder.open(cache_dir=tmp_path / "cache")
    assert samples(data) == published(lab)
    assert all(path.startswith(str(tmp_path)) for path in data.shards("training"))
    assert larder.open(cache_dir=tmp_path / "cache").version == data.version
    assert len(list(data.loader("training", batch_size=4))) == 4


@pytest.mark.push
@pytest.mark.parametrize("delivery", ["file", "fast_file"])
@pytest.mark.parametrize(("cache", "whole_keys"), [(None, False), ({"records": "encoded"}, True)])
def test_a_version_of_several_segments(delivery, cache, whole_keys, tmp_path, job):
    lab = lab_of(tmp_path, delivery, cache=cache, growth={})
    prepared(lab)
    write(str(lab.source), {"a/zz.png": png(5)})
    request = prepared(lab)
    kinds = {
        channel["ChannelName"]: channel["DataSource"]["S3DataSource"]["S3DataType"]
        for channel in request["InputDataConfig"]
    }
    assert set(kinds.values()) == {"S3Prefix", "ManifestFile"}
    assert ("training.2" in kinds) == (delivery == "fast_file")
    lay_out(lab, request, job, whole_keys=whole_keys)
    data = larder.open(cache_dir=tmp_path / "cache")
    assert samples(data) == published(lab)
    assert len(list(data.loader("training", batch_size=1))) == len(list(data.samples("training")))


def test_links_of_an_earlier_job_are_made_again(tmp_path, job, monkeypatch):
    """On one machine, with one cache: the folder of that job is gone."""
    lab = lab_of(tmp_path, "file")
    lay_out(lab, prepared(lab), job)
    for folder in (job, job.with_name("another")):
        if folder != job:
            job.rename(folder)
            monkeypatch.setenv("SM_INPUT_DIR", str(folder))
        data = larder.open(cache_dir=tmp_path / "cache")
        assert samples(data) == published(lab)


def test_shards_that_are_not_listed_are_not_in_a_channel(tmp_path, job):
    lab = lab_of(tmp_path, "file", growth={"removals": "repack"})
    prepared(lab)
    Path(str(lab.source), "a/03.png").unlink()
    lay_out(lab, prepared(lab), job)
    data = larder.open(cache_dir=tmp_path / "cache")
    assert samples(data) == published(lab)
    names = {path.rpartition("/")[2] for path in data.shards("training")}
    assert {path.name for path in (job / "data/training").rglob("*.tar")} == names
    with between():
        assert verified(lab)["status"] == "intact"  # the manifests are no foreign files
    assert [info.key for page in bucket(lab).list() for info in page if "sagemaker" in info.key]
    with larder_error("config.invalid_value"), between():
        emit(lab.settings(experiment={"delivery": "fast_file"}), "latest")


def test_a_node_that_has_some_of_the_shards_is_told_so(tmp_path, job):
    lab = lab_of(tmp_path, "file", {"sharded": True})
    lay_out(lab, prepared(lab), job)
    next((job / "data/training").iterdir()).unlink()
    with larder_error("config.path", str(job / "data/training")):
        larder.open(cache_dir=tmp_path / "cache")
    odd = {"splits": {"larder": "a/**", "train": ["b/**", "c/**"]}}
    lab = lab_of(tmp_path / "odd", "file", **odd)
    with larder_error("config.invalid_experiment"), between():
        lab.prepare()
    assert not any(bucket(lab).list(""))


def streamed(job: Path, split: str, epoch: int, data: bytes) -> list[Any]:
    """What `larder` reads from a named pipe into which the service writes."""
    path = job / "data" / f"{split}_{epoch}"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_bytes, args=(data,))
    writer.start()
    try:
        return list(larder.open(cache_dir=job / "cache").pipe(split, epoch))
    finally:
        writer.join()


@pytest.mark.parametrize(
    "consumer", [{}, *at_push({"record_io": True}, {"augmented": True})], ids=str
)
def test_samples_come_through_a_pipe(consumer, tmp_path, job):
    odd = {"a/" + "long" * 40 + ".png": png(7), "a/日 本.png": png(8)}
    lab = lab_of(tmp_path, "pipe", consumer, objects=images("abc", each=8) | odd)
    streams = lay_out(lab, prepared(lab), job)
    for epoch, split in enumerate(streams):
        found = streamed(job, split, epoch, streams[split])
        assert facts(found) == published(lab)[split]


def test_samples_of_recordio_come_through_a_pipe(tmp_path, job):
    magic = struct.pack("<I", 0xCED7_230A)
    objects = {f"a/{n}.bin": bytes(4) * n + magic * n + b"x" for n in range(5)}
    fields = {"shards": {"format": "recordio"}, "splits": {"t": "**"}}
    lab = lab_of(tmp_path, "pipe", objects=objects, **fields)
    (stream,) = lay_out(lab, prepared(lab), job).values()
    found = streamed(job, "t", 0, stream)
    assert [(sample.key, sample.label, sample.parts) for sample in found] == [
        (str(n), 0, {"data": objects[f"a/{n}.bin"]}) for n in range(5)
    ]
    with pytest.raises(DamageError):
        streamed(job, "t", 1, stream[:-5])
    with pytest.raises(DamageError):
        streamed(job, "t", 2, b"x" + stream[1:])


def test_a_pipe_that_ends_too_early_is_damage(tmp_path, job):
    lab = lab_of(tmp_path, "pipe")
    stream = lay_out(lab, prepared(lab), job)["validation"]
    for epoch, cut in enumerate((512, 1024, 700)):
        with pytest.raises(DamageError) as caught:
            streamed(job, "validation", epoch, stream[: -2048 - cut])
        assert caught.value.code in ("damage.size", "damage.record")
        assert caught.value.where == str(job / f"data/validation_{epoch}")
    os.mkfifo(job / "data/validation_9")
    with larder_error("run.timeout", str(job / "data/validation_9")):  # nobody writes to it
        next(larder.open(cache_dir=tmp_path / "cache").pipe("validation", 9, wait_seconds=0))


@pytest.mark.push
@pytest.mark.parametrize("consumer", [{}, {"record_io": True}], ids=str)
def test_a_flipped_byte_in_a_pipe_is_damage_or_changes_nothing(consumer, tmp_path, job):
    lab = lab_of(tmp_path, "pipe", consumer)
    stream = lay_out(lab, prepared(lab), job)["validation"]
    data = larder.open(cache_dir=tmp_path / "cache")
    wanted = published(lab)["validation"]
    damaged = 0
    for place in random.Random(7).sample(range(len(stream)), 300):
        broken = bytearray(stream)
        broken[place] ^= 0x40
        (job / "data/validation_0").write_bytes(broken)
        try:
            assert facts(data.pipe("validation")) == wanted
        except DamageError:
            damaged += 1
    assert damaged > 100


@pytest.mark.parametrize("format_", ["webdataset", "recordio"])
def test_a_pipe_has_whole_shards_in_any_order(format_, tmp_path, job):
    """Of these, two begin with equal records."""
    files = {f"a/{n:02}.bin": bytes([n // 2 % 4]) * 300 + bytes([n]) * (n % 2) for n in range(12)}
    shards = {"format": format_, "samples_per_shard": 2}
    lab = lab_of(tmp_path, "pipe", objects=files, splits={"t": "**"}, shards=shards)
    request = prepared(lab)
    lay_out(lab, request, job)
    (channel,) = (each for each in request["InputDataConfig"] if each["InputMode"] == "Pipe")
    bodies = [body for _, body in objects(lab, channel["DataSource"]["S3DataSource"])]
    data = larder.open(cache_dir=tmp_path / "cache")

    def read(numbers: list[int]) -> list[bytes]:
        (job / "data/t_0").write_bytes(b"".join(bodies[number] for number in numbers))
        return [part for sample in data.pipe("t") for part in sample.parts.values()]

    assert sorted(read([3, 4, 0, 1, 5, 2])) == sorted(read(list(range(6))))
    for numbers in ([3, 4, 0, 1, 5, 3], [0, 1, 2, 3, 4]):
        with pytest.raises(DamageError):
            read(numbers)


def test_a_file_system_has_everything(tmp_path, job, monkeypatch):
    file_system = {"type": "fsx", "id": "fs-0123456789abcdef0", "directory": "/abcdb/data"}
    vpc = {"subnets": ["subnet-1"], "security_groups": ["sg-1"]}
    consumer = {"file_system": file_system, "vpc": vpc}
    lab = lab_of(tmp_path, "fsx", consumer, cache={"records": "encoded"})
    lab = Lab(lab.source, tmp_path / "storage", lab.output, lab.fields)
    request = prepared(lab)
    prepared(Lab(lab.source, lab.storage, tmp_path / "other", {**lab.fields, "validate": "none"}))
    for channel in request["InputDataConfig"]:
        source = channel["DataSource"]["FileSystemDataSource"]
        target = job / "data" / channel["ChannelName"]
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(str(tmp_path / "storage") + source["DirectoryPath"][len("/abcdb/data") :])
    assert len(list((job / "data/training").glob("*.tar"))) > 1
    location = request["Environment"]["LARDER_LOCATION"]
    monkeypatch.setenv("LARDER_LOCATION", location.replace("/opt/ml/input", str(job)))
    data = larder.open(cache_dir=tmp_path / "cache")
    assert samples(data) == published(lab)
    assert len(data.cache("training")) == len(list(data.samples("training")))
