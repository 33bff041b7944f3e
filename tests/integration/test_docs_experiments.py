"""The examples of docs/how-to/experiment-configs.md, which are those of Determined's guide."""

import csv
import io
import json
import re
import shutil
import sys
import tarfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, png, write
from required import read_with_frameworks
from test_determined_deliveries import delivered, document

PAGE = (Path(__file__).parents[2] / "docs/how-to/experiment-configs.md").read_text()
TABLE = b"x,y\n1,2\n3,4\n"
ROWS = [["x", "y"], ["1", "2"], ["3", "4"]]
Submit = Callable[[Lab], dict[str, Any]]


def code_of(name: str) -> str:
    (code,) = (each for each in re.findall(r"```python\n(.*?)```", PAGE, re.S) if name in each)
    return code


def documented(name: str, temporary: Path = Path("/tmp"), **given: Any) -> dict[str, Any]:
    exec(code_of(name).replace("/tmp", str(temporary)), given)
    return given


@pytest.fixture
def submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Submit:
    """Make this process a trial: a work directory with what was emitted, and the config."""

    def start(lab: Lab) -> dict[str, Any]:
        work = tmp_path / "run/determined/workdir"
        shutil.copytree(lab.output, work)
        monkeypatch.chdir(work)
        config = document(lab)
        monkeypatch.setenv("DET_EXPERIMENT_CONFIG", json.dumps(config))
        return config

    return start


def context(config: dict[str, Any], rank: int = 0) -> SimpleNamespace:
    ranks = SimpleNamespace(get_rank=lambda: rank)
    return SimpleNamespace(get_data_config=lambda: config["data"], distributed=ranks)


def test_a_table_beside_the_model_code(tmp_path, submit, monkeypatch):
    """const.yaml, data.csv and model_def.py of the guide, in one directory."""
    fields = {"cache": None, "labels": None, "splits": {"all": "**"}, "validate": "none"}
    lab = directory_lab(tmp_path, {"data.csv": TABLE}, **fields)
    lab.output.mkdir()
    (lab.output / "model_def.py").write_text("import larder\n")
    run = delivered(lab, "inline")
    assert run["command"] == (f"det experiment create {lab.output}/experiment.yaml {lab.output}")
    submit(lab)
    shutil.rmtree(str(lab.storage))  # nothing but the work directory is needed
    # pandas is no dependency of the tests.
    pandas = SimpleNamespace(read_csv=lambda file: list(csv.reader(io.TextIOWrapper(file))))
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    assert documented("pandas.read_csv")["load_data"]() == ROWS


@pytest.mark.push
def test_the_trials_train_and_resume_in_a_file_system(tmp_path, submit, monkeypatch):
    """As in Determined 0.38.1; /mnt/data/training and /mnt/data/validation of its guide."""
    codes, configs = {}, {}
    for name, split in (("ImageTrial", "train"), ("DigitsTrial", "training")):
        folder = tmp_path / name
        halves = {
            f"{each}/{label}/{number}.png": png(10 * place + number, 8, 8)
            for each in (split, "validation")
            for place, label in enumerate("ab")
            for number in range(6)
        }
        splits = {each: f"{each}/**" for each in (split, "validation")}
        lab = directory_lab(folder, halves, cache=None, splits=splits, shards={"count_min": 2})
        mount = {"host_path": str(folder), "container_path": str(folder)}
        delivered(lab, "bind_mount", nodes={"mounts": [mount]})
        configs[name] = document(lab)
        assert configs[name]["bind_mounts"] == [{**mount, "read_only": True}]
        codes[name] = code_of(f"class {name}")
    given = {"images": configs["ImageTrial"], "digits": configs["DigitsTrial"]}
    monkeypatch.setenv("HOME", str(tmp_path))  # where Determined keeps checkpoints off-cluster
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")  # it reads them as torch 2.5 does
    codes["core"] = code_of("core.init()")
    trained = read_with_frameworks("with_determined", {"codes": codes, **given})
    whole = trained["whole"]["labels"]
    assert [len(batch) for batch in whole] == [4] * 7
    first, rest = (each["labels"] for each in trained["resumed"])
    assert [*first, *rest] == whole
    assert sorted(chain(*trained["digits"]["labels"])) == [0] * 6 + [1] * 6
    assert [sorted(batch) for batch in trained["core"]] == [[0] * 6 + [1] * 6] * 3


def test_every_rank_downloads_from_the_bucket(rclone_server, tmp_path, submit, monkeypatch):
    """Copied from another region first; then data.bucket, and a directory for each rank."""
    for name, value in rclone_server.environment.items():
        if name not in ("AWS_ENDPOINT_URL", "AWS_REGION"):
            monkeypatch.setenv(name, value)
    places = {}
    for region in ("us-east-1", "us-west-2"):
        bucket = f"{region}-bucket"
        rclone_server.create_bucket(bucket)
        url = f"s3://{bucket}/{tmp_path.name}"
        places[bucket] = {"url": url, "endpoint": rclone_server.endpoint}
    remote, local = places.values()
    write(remote["url"], {"data.csv": TABLE}, endpoint=remote["endpoint"])
    fields = {"mirror": True, "splits": {"all": "**"}, "validate": "none"}
    lab = Lab(remote, local, tmp_path / "out", fields)
    run = delivered(lab, "bucket")
    assert run["copied"]["count"] == 1
    config = submit(lab)
    assert config["data"]["bucket"] == "us-west-2-bucket"
    download = documented("def download_data_from_s3", tmp_path)["download_data_from_s3"]
    directories = set()
    for rank in range(2):
        directory = download(SimpleNamespace(context=context(config, rank)), "all")
        directories.add(directory)
        (shard,) = Path(directory).glob("*.tar")
        with tarfile.open(shard) as tar:
            text = tar.extractfile("data.csv")
            assert text is not None
            assert list(csv.reader(io.TextIOWrapper(text))) == ROWS
    assert len(directories) == 2
