"""A slow file system is copied to a disk of the node before a trial of Determined starts."""

from pathlib import Path

import pytest
from determined_lab import Trials, delivered, downloads
from pipeline_lab import directory_lab


@pytest.mark.push
@pytest.mark.parametrize("claim", [None, "team-data"])
def test_a_trial_reads_the_copy_on_its_node(claim, tmp_path):
    directory = directory_lab(tmp_path, cache=None)
    storage = str(tmp_path / "local")
    mount = {"host_path": storage, "container_path": storage, "claim": claim}
    nodes = {"mounts": [mount], **downloads(tmp_path)}
    delivered(directory, "download", nodes=nodes)
    config = Trials(tmp_path / "trials", {}).read(directory)
    copy = Path(config["data"]["path"])
    assert copy.is_relative_to(nodes["downloads"]["container_path"])
    assert sorted(path.name for path in copy.rglob("*.tar")) == sorted(
        Path(shard).name for shard in directory.newest().shards
    )
