"""What loaders give, compared with a second reader that was written from the documentation.

At every push 30 rows of options that a person chose; at night every pair of options, and
``LARDER_ROWS`` random rows (1,000) of single loaders and of mixes each.
"""

from __future__ import annotations

import os
import random

import pytest
from required import nightly

from tests.oracle.lab import Asked, Lab
from tests.oracle.rows import FIXED, MIX, SINGLE, covering, drawn
from tests.oracle.scene import play

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
KINDS = {"single": SINGLE, "mix": MIX}


@pytest.fixture(scope="session")
def lab(tmp_path_factory, request):
    place = tmp_path_factory.mktemp("oracle")
    fixture = request.getfixturevalue
    return Lab(place, lambda: fixture("rclone_server"), lambda: fixture("gcs_server"))


@pytest.mark.parametrize("number", range(len(FIXED)))
def test_a_row_of_every_push(lab, number):
    assert play(Asked(lab, FIXED[number], number), number) is None, FIXED[number]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KINDS)
def test_every_pair_and_random_rows(lab, kind):
    draw = random.Random() if nightly() else random.Random(1)
    rows = [*covering(KINDS[kind])]
    rows += [drawn(KINDS[kind], draw) for _ in range(int(os.environ.get("LARDER_ROWS", 1000)))]
    differing = []
    for number, row in enumerate(rows, 1000):
        if found := play(Asked(lab, row, number), number):
            differing.append(f"{row}: {found}")
    assert not differing, "\n".join([f"{len(differing)} of {len(rows)} rows", *differing[:20]])
