"""Recipes of the pages that train with frameworks are killed at steps, and resumed."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from image_files import saved
from PIL import Image
from pipeline_lab import Lab, reach, write
from required import read_with_frameworks

from tests.frameworks.with_kills import FOUND, cases
from tests.support.servers import S3Server

pytestmark = pytest.mark.push

PAGE = (Path(__file__).parents[2] / "docs/how-to/training-frameworks.md").read_text()
SECTIONS = {
    heading: "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    for heading, text in re.findall(r"^## (.*?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
}
REFUSED = {"Keras: steps", "Keras: validation_steps", "Keras: uncounted_steps"}
ALWAYS = {
    *("PyTorch Lightning: limit", "PyTorch Lightning: exception_accumulation", "Keras: processes"),
    *("Accelerate: plain", "Text, and the Trainer of Hugging Face: accumulation"),
    *("Text, and the Trainer of Hugging Face: evaluation", "Keras: plain", *REFUSED, *FOUND),
}
PROGRAMS = ["trainers", "tensorflow"]


@pytest.fixture(scope="module")
def bucket(rclone_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    folder = tmp_path_factory.mktemp("page")
    storage = {"url": "s3://team", **reach(rclone_server)}
    rclone_server.create_bucket("team")
    image = saved(Image.new("RGB", (12, 10)), "JPEG")
    pictures = {f"{n % 5}/x-{n:03}.jpg": image for n in range(600)}
    pictures |= {f"validation/{n % 5}/x-{n:03}.jpg": image for n in range(40)}
    reviews = {f"{n % 2}/{n:02}.txt": b" ".join([b"w%d" % n] * (n % 5 + 1)) for n in range(72)}
    reviews |= {f"validation/{n % 2}/{n:02}.txt": b"w%d" % n for n in range(12)}
    fields = {
        "labels": {"from": "folder"},
        "shards": {"format": "webdataset", "samples_per_shard": 50, "shuffle_seed": 7},
        "splits": {"validation": "validation/**", "train": "**"},
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in rclone_server.environment.items():
            patch.setenv(name, value)
        for name, objects in (("imagenet", pictures), ("reviews", reviews)):
            write(folder / name, objects)
            described = {"name": name, **fields}
            Lab(str(folder / name), storage, folder / f"{name}.out", described).prepare()
        yield rclone_server


def check(program: str, chosen: list[str], folder: Path, *chains: int) -> None:
    given: dict[str, Any] = {"program": program, "chosen": chosen, "sections": SECTIONS}
    given |= {"folder": str(folder), "chains": chains, "seed": 7}
    for row in read_with_frameworks("with_kills", given):
        case = row.pop("case")
        if case in REFUSED:
            assert row == {"refused": "config.invalid_value"}, case
        else:
            assert row == {"repeated": 0, "missing": 0, "differ": []}, case


@pytest.mark.parametrize("program", PROGRAMS)
def test_training_that_was_killed_goes_on(bucket, tmp_path, program):
    chosen = {*cases(program)[::4], *ALWAYS}
    check(program, [case for case in cases(program) if case in chosen], tmp_path, 2)


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("program", PROGRAMS)
def test_training_that_was_killed_at_many_steps_goes_on(bucket, tmp_path, program):
    check(program, cases(program), tmp_path, 5, 5, 5, 5)
