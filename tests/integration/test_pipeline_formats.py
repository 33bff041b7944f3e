"""Complete runs in every format: what comes out, growth, caches, and the indexes of splits."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pipeline_lab import Lab, directory_lab, write
from required import read_by_others

import larder

pytestmark = pytest.mark.push

SPLITS = {"train": ["a/**", "b/**"], "validation": "c/**"}


def blobs(classes: str = "abc", each: int = 11, size: int = 300) -> dict[str, bytes]:
    """Two parts of each sample, of the same lengths in all of them."""
    found = {}
    for place, name in enumerate(classes):
        for number in range(each):
            found[f"{name}/{number:02}.bin"] = bytes([16 * place + number]) * size
            found[f"{name}/{number:02}.pos.f4"] = np.float32(number).tobytes()
    return found


FORMATS: dict[str, dict[str, Any]] = {
    "webdataset": {"format": "webdataset", "samples_per_shard": 4},
    "parquet": {"format": "parquet", "bytes": 3_000},
    "records": {"format": "records", "bytes": 1_300},
    "batches": {"format": "batches", "samples_per_shard": 4},
}


@pytest.fixture(params=FORMATS)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Lab:
    return lab_of(tmp_path, request.param)


def lab_of(folder: Path, name: str, objects: dict[str, bytes] | None = None, **fields: Any) -> Lab:
    own = blobs() if objects is None else objects
    defaults = {"shards": FORMATS[name], "splits": SPLITS, "cache": {}, "validate": "header"}
    return directory_lab(folder, own, **{**defaults, **fields})


@pytest.mark.parametrize("name", ["webdataset", "records", "batches"])
def test_a_split_has_an_index_for_other_readers(tmp_path, name):
    kind = "wids" if name == "webdataset" else name
    lab = lab_of(tmp_path, name)
    lab.prepare()
    write(str(lab.source), {"a/99.bin": b"!" * 300, "a/99.pos.f4": b"4444"})
    document = lab.prepare()
    root = lab.folder
    path = root / "versions" / document["version"] / "readers" / kind / "train.json"
    index = json.loads(path.read_bytes())
    data = larder.open(f"{lab.storage}/larder/d")
    if name == "webdataset":
        shards = [(path.parent / shard["url"]).resolve() for shard in index["shardlist"]]
        assert index["__kind__"] == "wids-shard-index-v1"
        assert sum(shard["nsamples"] for shard in index["shardlist"]) == 23
        sizes = [shard["filesize"] for shard in index["shardlist"]]
        assert sizes == [shard.stat().st_size for shard in shards]
    else:
        shards = [
            (root / shard["key"]).resolve()
            for shard in index["batches" if name == "batches" else "shards"]
        ]
    assert [str(shard) for shard in shards] == [
        str(Path(p).resolve()) for p in data.shards("train")
    ]
    version = lab.newest().version
    assert len(version.files_of("readers")) == 2


def test_shards_with_omitted_samples_have_no_such_index(tmp_path):
    lab = lab_of(tmp_path, "webdataset", growth={"removals": "omit"})
    lab.prepare()
    lab.remove("a/03.bin", "a/03.pos.f4")
    document = lab.prepare()
    root = lab.folder / "versions" / document["version"]
    found = {path.relative_to(root).as_posix() for path in root.glob("readers/*/*")}
    assert found == {"readers/wids/validation.json"}


WIDS = """
import io, json, sys, types

# wids imports torch for samplers that distribute what it reads, and for the name of a base class.
torch = types.ModuleType("torch")
for name in ("torch.distributed", "torch.utils", "torch.utils.data"):
    sys.modules[name] = types.ModuleType(name)
torch.distributed = sys.modules["torch.distributed"]
data = sys.modules["torch.utils.data"]

class Base:
    __class_getitem__ = classmethod(lambda cls, _: cls)

data.Dataset = data.Sampler = Base
sys.modules["torch"] = torch
import wids

given = json.load(sys.stdin)
dataset = wids.ShardListDataset(given["index"], transformations=[], cache_dir=given["cache"])
print(json.dumps([
    {name: value.read().hex() if isinstance(value, io.IOBase) else str(value)
     for name, value in dataset[number].items()}
    for number in range(len(dataset))
]))
"""


def test_wids_reads_every_sample(tmp_path):
    lab = lab_of(tmp_path, "webdataset")
    lab.prepare()
    write(str(lab.source), {"a/99.bin": b"!" * 300, "a/99.pos.f4": b"4444"})
    document = lab.prepare()
    path = f"{lab.folder}/versions/{document['version']}/readers/wids/train.json"
    wanted = lab.newest().samples["train"]
    found = read_by_others(WIDS, {"index": path, "cache": str(tmp_path / "cache")})
    assert len(found) == len(wanted) == 23
    for read, sample in zip(found, wanted, strict=True):
        assert read["__key__"] == sample.key
        parts = {name[1:]: data for name, data in read.items() if name.startswith(".")}
        assert parts == {ext: data.hex() for ext, data in sample.parts.items()}
