"""The examples of docs/how-to/read-in-training.md and training-frameworks.md, run against versions
in a bucket.
"""

import json
import re
import tarfile
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from image_files import saved
from PIL import Image
from pipeline_lab import Lab, reach, write
from required import read_with_frameworks
from ruamel.yaml import YAML

import larder
from tests.support.servers import S3Server

pytestmark = pytest.mark.push

PAGES = Path(__file__).parents[2] / "docs/how-to"
PAGE = (PAGES / "read-in-training.md").read_text()
FRAMEWORKS = (PAGES / "training-frameworks.md").read_text()
SAMPLES = 300
RECORDS = 1_000


def section(heading: str, page: str = PAGE) -> str:
    _, _, rest = re.split(rf"^(#+) {heading}$", page, flags=re.MULTILINE)
    return "\n".join(
        re.findall(r"```python\n(.*?)```", re.split(r"^#+ ", rest, flags=re.M)[0], re.S)
    )


def jpeg(number: int) -> bytes:
    return saved(Image.new("RGB", (12, 10), (number % 256, 0, 0)), "JPEG")


def prepare(
    folder: Path, storage: Any, name: str, objects: Mapping[str, bytes], **fields: Any
) -> Lab:
    write(folder / name, objects)
    lab = Lab(str(folder / name), storage, folder / "out" / name, {"name": name, **fields})
    lab.prepare()
    return lab


@pytest.fixture(scope="module")
def labs(
    rclone_server: S3Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Lab]]:
    folder = tmp_path_factory.mktemp("page")
    storage = {"url": "s3://team", **reach(rclone_server)}
    rclone_server.create_bucket("team")
    pictures = {f"{n % 5}/{n:03}.jpg": jpeg(n) for n in range(SAMPLES)}
    pictures |= {f"validation/{n % 5}/{n:03}.jpg": jpeg(n) for n in range(40)}
    pets = {f"{n:02}.json": b'{"boxes": [%d]}' % n for n in range(40)}
    records = {f"{n:04}.i8": np.int64(n).tobytes() for n in range(RECORDS)}
    random = np.random.default_rng(7)
    grey = [Image.fromarray(random.integers(0, 255, (10, 12), np.uint8)) for _ in range(16)]
    cells = {f"{n:02}.png": saved(image, "PNG") for n, image in enumerate(grey)}
    cells |= {f"{n:02}.seg.png": saved(image, "PNG") for n, image in enumerate(grey)}
    lines = {f"{n:02}.txt": b"x" * n for n in range(16)}
    halves = {
        f"{split}/{n % 3}/{n:02}.jpg": jpeg(n)
        for split in ("training", "validation")
        for n in range(12)
    }
    shards = {"format": "webdataset", "samples_per_shard": 3, "shuffle_seed": 7}
    folders = {"labels": {"from": "folder"}, "shards": shards}
    both = {"training": "training/**", "validation": "validation/**"}
    train, every = {"splits": {"train": "**"}}, {"splits": {"all": "**"}}
    two = {"splits": {"validation": "validation/**", "train": "**"}}
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rclone_server.environment.items():
            patch.setenv(name, value)
        yield {
            "imagenet": prepare(folder, storage, "imagenet", pictures, **folders, **two),
            "pets": prepare(folder, storage, "pets", pets, **train),
            "cells": prepare(folder, storage, "cells", cells, **train),
            "lines": prepare(folder, storage, "lines", lines, **train),
            "halves": prepare(folder, storage, "halves", halves, **folders, splits=both),
            "tables": prepare(folder, storage, "tables", {"data.csv": b"a,b\n1,2\n"}, **every),
            "range_dataset": prepare(
                folder, storage, "range_dataset", records, shards={"format": "records"}, **every
            ),
        }


def test_plain_python(labs):
    steps: list[Any] = []
    names: dict[str, Any] = {"train_step": lambda *arrays: steps.append([a.shape for a in arrays])}
    exec(section("Python"), names)
    assert steps == [[(256, 224, 224, 3), (256,)], [(44, 224, 224, 3), (44,)]]
    assert sorted(box for (box,) in names["boxes"]) == list(range(40))


def test_functions_of_a_sample(labs):
    names: dict[str, Any] = {}
    exec(section("Functions of a sample"), names)
    shapes = [next(iter(names[name]))["image"].shape for name in ("train", "validation")]
    assert shapes == [(32, 224, 224, 3)] * 2
    for batch in names["pieces"]:
        assert batch["image"].shape == (8, 8, 8, 3)
        assert np.array_equal(batch["image"][..., :1], batch["image.seg"]), "they are cut alike"
    assert [batch.shape for batch in names["texts"]] == [(8, 7), (8, 15)]


def test_samples_are_chosen(labs):
    names: dict[str, Any] = {}
    exec(section("Choosing samples"), names)
    data = names["data"]
    assert names["keys"] == [sample.key for sample in data.samples("train")]
    assert {label for batch in names["loader"] for label in batch["label"].tolist()} == {0, 3}
    loaders = [
        data.loader("train", batch_size=8, choose=names[name])
        for name in ("some", "large", "few", "balanced", "rare")
    ]
    assert [len(loader) for loader in loaders] == [8, 38, 4, 38, 38]
    labels = np.concatenate([batch["label"] for batch in loaders[3]])
    assert np.bincount(labels).tolist() == [60] * 5


def test_each_node_downloads_once(labs, monkeypatch, tmp_path):
    (config,) = labs["halves"].output.rglob("experiment.yaml")
    monkeypatch.setenv("DET_EXPERIMENT_CONFIG", json.dumps(YAML(typ="safe").load(config)))

    def make_data_loader(data_path: str) -> list[int]:
        labels: list[int] = []
        for shard in Path(data_path).glob("*.tar"):
            with tarfile.open(shard) as tar:
                members = [member for member in tar if member.name.endswith(".cls")]
                labels += [int(tar.extractfile(member).read()) for member in members]
        return labels

    code = section("Download once for a node")
    trial, _, table = code.partition("import io\n")
    names: dict[str, Any] = {"make_data_loader": make_data_loader}
    exec(trial.replace("/tmp/data", str(tmp_path / "data")), names)
    for _ in range(2):
        reads = names["Trial"](None)
        for labels in (reads.build_training_data_loader(), reads.build_validation_data_loader()):
            assert sorted(labels) == sorted([0, 1, 2] * 4)
    exec(f"import io\n{table}", names)
    assert names["text"].read() == "a,b\n1,2\n"


@pytest.fixture(scope="module")
def read(labs: dict[str, Lab]) -> Any:
    version = larder.open("s3://team/larder/range_dataset").version
    read: dict[str, Any] = {}
    for headings in (
        ("PyTorch", "Tar files of a bucket"),
        ("TensorFlow", "Keras", "Records of a fixed size"),
        ("grain",),
    ):
        given = {"sections": {name: section(name) for name in headings}, "version": version}
        read |= read_with_frameworks("with_page", given)
    return read


@pytest.fixture(scope="module")
def labels(labs: dict[str, Lab]) -> list[int]:
    """In the order of the shards."""
    data = larder.open("s3://team/larder/imagenet")
    return [sample.label for sample in data.samples("train") if sample.label is not None]


def test_torch(read):
    whole = [["torch.uint8", 256, 224, 224, 3], ["torch.int64", 256]]
    rest = [["torch.uint8", 44, 224, 224, 3], ["torch.int64", 44]]
    by_number = [["torch.uint8", 32, 224, 224, 3], ["torch.int64", 32]]
    assert read["PyTorch"]["steps"] == [whole, rest, whole, rest, by_number]
    assert read["PyTorch"]["rest"] == 2, "after the last batch of an epoch, the next one"


def test_tensorflow(read):
    sizes = [images[1] for images, _ in read["TensorFlow"]["steps"]]
    assert sizes == [64, 64, 64, 64, 44]
    assert read["TensorFlow"]["steps"][0] == [
        ["<dtype: 'uint8'>", 64, 224, 224, 3],
        ["<dtype: 'int64'>", 64],
    ]
    loader = larder.open("s3://team/larder/imagenet").loader("train", batch_size=64, shuffle=True)
    loader.skip(3)
    assert read["TensorFlow"]["rest"] == [key for batch in loader for key in batch["key"]]


def test_keras(read):
    assert read["Keras"] == [2, 5]


def test_grain(read, labels):
    assert read["grain"] == sorted(labels)


def test_records_of_a_fixed_size(read):
    sizes, numbers = read["Records of a fixed size"]
    assert sizes == [64] * 15 + [40]
    assert numbers == list(range(1, RECORDS + 1))


def test_the_tar_files_of_a_bucket(read, labels):
    tars = read["Tar files of a bucket"]
    assert tars["shards"] == [f"imagenet-train-{number:06d}.tar" for number in range(100)]
    assert tars["plain"] == labels
    assert tars["labels"] == sorted(labels)
    assert tars["batches"] == [256, 44]


@pytest.fixture(scope="module")
def trained(labs: dict[str, Lab], tmp_path_factory: pytest.TempPathFactory) -> Any:
    headings = re.findall("^## (.*)$", FRAMEWORKS, re.MULTILINE)
    given = {
        "sections": {name: section(name, FRAMEWORKS) for name in headings},
        "folder": str(tmp_path_factory.mktemp("trainers")),
    }
    return read_with_frameworks("with_trainers", given)


def test_lightning_trains_with_every_sample_once(trained):
    loader = larder.open("s3://team/larder/imagenet").loader(
        "train", batch_size=64, shuffle=True, seed=7
    )
    ranks = trained["PyTorch Lightning"]
    steps = zip(*(rank["steps"] for rank in ranks), strict=True)
    together = [[epoch, keys + others] for (epoch, keys), (_, others) in steps]
    assert together == [[epoch, batch["key"]] for epoch in range(2) for batch in loader]
    validated = [rank["validated"] for rank in ranks]
    assert [len(batches) for batches in validated] == [3, 3], "a sanity check and two epochs"
    for batches in zip(*validated, strict=True):
        assert len(set(chain(*batches))) == 40


def test_an_image_and_its_mask_are_varied_alike(trained):
    varied = trained["torchvision: images and masks"]
    assert varied["shape"] == [8, 3, 32, 32]
    assert len(varied["alike"]) == 16
    assert min(varied["alike"]) > 0.8
    assert varied["same"], "in every run"
    assert varied["of_16_bits"] == [60_000]


def test_classes_of_different_sizes(trained):
    assert trained["Classes of different sizes"] == [[60] * 5, [1.0] * 5]
