"""What loaders give, compared with a second reader that was written from the documentation.

At every push 30 rows of options that a person chose; of these, `make test` plays rows that have
every option once. At night every pair of options of each kind, and
``LARDER_ROWS`` random rows (1,000). ``python -m tests.oracle`` plays them by hand.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from required import at_push, missing, nightly

from tests.oracle.lab import Asked, Lab
from tests.oracle.rows import FIXED
from tests.oracle.scene import play
from tests.oracle.sets import FORMS, prepare

ROOT = Path(__file__).parents[2]
READERS = ROOT / ".venv-readers/bin/python"
ROWS = os.environ.get("LARDER_ROWS", "1000" if nightly() else "0")
QUICK = (*range(3, 12), 13, 14, 15, 16, 17, 19, 20, 21, 24, 25, 26, 28, 29)


@pytest.fixture(scope="session")
def lab(tmp_path_factory, request):
    fixture = request.getfixturevalue
    place = tmp_path_factory.mktemp("oracle")
    return Lab(place, lambda: fixture("rclone_server"), lambda: fixture("gcs_server"))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("number", [*QUICK, *at_push(*sorted({*range(len(FIXED))} - {*QUICK}))])
def test_a_row_of_every_push(lab, number):
    assert play(Asked(lab, FIXED[number], number), number) is None, FIXED[number]


@pytest.mark.nightly
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["single", "mix", "frameworks", "frameworks-mix"])
def test_every_pair_and_random_rows(kind, tmp_path_factory):
    python = READERS if kind.startswith("frameworks") else Path(sys.executable)
    if not python.exists():
        missing("the readers of other projects are not set up (`make readers-test` does that)")
    place = tmp_path_factory.mktemp("rows")
    for form in FORMS:  # where the frameworks are, none can be prepared
        prepare(place, form)
    command = [python, "-m", "tests.oracle", kind, ROWS, "--place", place]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "-1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout[-20_000:]
