"""Runs that transform images and are killed or interrupted: the next one makes the same bytes."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from image_files import saved
from PIL import Image

from larder.store import open_store
from tests.support.checker import check_all

RUN = """
import json, sys
from pathlib import Path
from larder.pipeline.prepare import prepare
from tests.support.runs import between, run_settings
from tests.support.stores import Signal, StoppingStore

folder, after = Path(sys.argv[1]), int(sys.argv[2])
settings = run_settings(
    folder / "source", folder / "local", folder / "out",
    shards={"bytes": 8_000, "images": {"resize": 16}}, validate="header",
    cluster={"runner": {"workers": 2, "batch_bytes": 12_000}},
)
stop = Signal(after, int(sys.argv[3]))
with between(lambda store: StoppingStore(store, stop)):
    prepare(settings)
print(json.dumps([key for _, key in stop.writes]))
"""


def run(folder: Path, after: int = 0, number: int = signal.SIGKILL) -> tuple[int, str]:
    """The status of a run that gets a signal at a write, and what it prints.

    It has ended only once its processes have: they have the same stderr.
    """
    command = [sys.executable, "-c", RUN, str(folder), str(after), str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert after or done.returncode == 0, done.stderr
    return done.returncode, done.stdout


def fill(folder: Path) -> None:
    for number in range(24):
        pixels = np.random.default_rng(number).integers(0, 256, (5, 7, 3), np.uint8)
        image = Image.fromarray(pixels).resize((56, 40), Image.Resampling.BICUBIC)
        path = folder / "source" / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(saved(image, "JPEG"))
        os.utime(path, ns=(10**18, 10**18))


def shards(folder: Path) -> dict[str, str]:
    (found,) = check_all(open_store(str(folder / "local" / "larder" / "d"))).values()
    return {path.rpartition("/")[2]: digest for path, digest in found.shards.items()}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], dict[str, str]]:
    """The keys that an undisturbed run writes, and the sha256 of its shards."""
    folder = tmp_path_factory.mktemp("undisturbed")
    fill(folder)
    _, printed = run(folder)
    keys: list[str] = json.loads(printed)
    return keys, shards(folder)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
@pytest.mark.exhaustive
def test_a_run_that_ends_in_the_middle_leaves_no_process_and_is_finished_by_the_next(
    tmp_path, undisturbed, number
):
    keys, expected = undisturbed
    assert len(expected) > 3
    fill(tmp_path)
    written = [place for place, key in enumerate(keys, 1) if "/shards/train/" in key]
    status, _ = run(tmp_path, written[len(written) // 2], number)
    assert status not in (0, None)
    run(tmp_path)
    assert shards(tmp_path) == expected


@pytest.mark.exhaustive
def test_limits_of_a_run_do_not_show_in_its_bytes(tmp_path, undisturbed):
    """The same on one worker, without processes."""
    fill(tmp_path)
    single = RUN.replace('"workers": 2', '"workers": 1')
    command = [sys.executable, "-c", single, str(tmp_path), "0", "9"]
    subprocess.run(command, check=True, capture_output=True)
    assert shards(tmp_path) == undisturbed[1]
