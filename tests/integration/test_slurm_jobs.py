"""What is emitted for Slurm runs there: in a cluster of one node, from Debian's packages."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_lab import Lab, reach, write
from required import need_system

from tests.support.slurm import slurm, slurm_available

TRAIN = """
import json, os, larder
loader = larder.open().loader("train", batch_size=4)
keys = [key for batch in loader for key in batch["key"]]
print(json.dumps([os.environ["LARDER_LOCATION"], repr(loader), keys]))
"""


@pytest.fixture(scope="module")
def cluster():
    need_system(slurm_available(), "no Slurm; .ci/install-slurm installs it")
    with slurm() as environ:
        yield environ


@pytest.mark.parametrize("delivery", ["bind_mount", "download"])
def test_ranks_of_slurm_read_their_parts(cluster, delivery, rclone_server, tmp_path, monkeypatch):
    for name, value in rclone_server.environment.items():
        monkeypatch.setenv(name, value)
    rclone_server.create_bucket("slurm")
    bucket = {"url": f"s3://slurm/{tmp_path.name}", **reach(rclone_server)}
    storage = str(tmp_path / "shared") if delivery == "bind_mount" else bucket
    downloads = dict.fromkeys(("host_path", "container_path"), str(tmp_path / "a node's"))
    (tmp_path / "train.py").write_text(TRAIN)
    script = [
        "#!/bin/bash",
        "#SBATCH --ntasks=2 --export=NONE --output=job.log",
        f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:/usr/bin:/bin",
        *(f"export {name}={value}" for name, value in rclone_server.environment.items()),
        "srun --output=%t.json python3 train.py",
    ]
    write(str(tmp_path / "source"), {f"{number}.bin": b"x" for number in range(8)})
    lab = Lab(str(tmp_path / "source"), storage, tmp_path / "out", {})
    lab.prepare(
        experiment={"delivery": delivery},
        cluster={"consumer": {"kind": "slurm"}, "nodes": {"downloads": downloads}},
        template={"script": "\n".join(script)},
    )
    job = str(lab.output / "job.sh")
    for flag in ("--wait", "--test-only"):
        done = subprocess.run(["sbatch", flag, job], cwd=tmp_path, env=cluster, check=False)
        assert done.returncode == 0, (tmp_path / "job.log").read_text()
    ranks = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    place = storage if delivery == "bind_mount" else downloads["container_path"]
    assert all(location.startswith(f"{place}/larder/d/") for location, *_ in ranks)
    assert ["rank 0 of 2" in ranks[0][1], "rank 1 of 2" in ranks[1][1]] == [True, True]
    assert sorted(ranks[0][2] + ranks[1][2]) == list("01234567")
