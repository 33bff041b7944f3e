"""An emitted config is enough for WebDataset's own reader."""

from __future__ import annotations

import gc
import io
import tarfile
from pathlib import Path

import pytest
import webdataset as wds
from ruamel.yaml import YAML

from larder.config.models import Cluster
from larder.experiments.delivery import SplitInfo, VersionInfo, choose
from larder.experiments.emit import emit, write_configs

TEMPLATE = Path(__file__).parents[2] / "configs" / "experiments" / "digits.yaml"


def write_shard(path: Path, keys: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as shard:
        for key in keys:
            member = tarfile.TarInfo(f"{key}.cls")
            member.size = 1
            shard.addfile(member, io.BytesIO(b"7"))


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset's own
@pytest.mark.parametrize("segments", [["a"], ["a", "b"]])
def test_the_patterns_are_read_from_the_config(tmp_path: Path, segments: list[str]) -> None:
    storage = tmp_path / "team data"
    root = storage / "larder" / "digits"
    for segment in segments:
        for number in range(2):
            path = root / "segments" / segment / f"digits-train-{number:06d}.tar"
            write_shard(path, [f"{segment}{number}"])
    patterns = [f"segments/{segment}/digits-train-{{000000..000001}}.tar" for segment in segments]
    version_info = VersionInfo(
        dataset="digits",
        version="0" * 32,
        digest="0" * 64,
        location=f"file://{root}/versions/{'0' * 32}",
        root=f"file://{root}/",
        storage_url=f"file://{storage}/",
        delivery=choose("auto", str(storage)),
        splits={"train": SplitInfo(2, 2, 2, tuple(patterns))},
    )
    cluster = Cluster.model_validate({"name": "local", "storage": {"url": str(storage)}})
    files = emit(version_info, cluster, YAML(typ="safe").load(TEMPLATE.read_text()))
    (written,) = write_configs(files, tmp_path / "out")

    data = YAML(typ="safe").load(written.path.read_text())["data"]
    samples = wds.WebDataset(data["splits"]["train"]["pattern"], shardshuffle=False)
    keys = [sample["__key__"] for sample in samples]
    gc.collect()  # while the warning is ignored
    assert keys == [f"{segment}{number}" for segment in segments for number in range(2)]
