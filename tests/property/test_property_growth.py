"""Random histories of a dataset: after every step, what readers see is what the source has.

``LARDER_HISTORIES`` is the number of histories that each test tries.
"""

import os
import tempfile
from pathlib import Path

import pytest
from history_lab import Place, Run
from history_model import histories
from hypothesis import HealthCheck, given, settings
from required import nightly

FEW = "40" if nightly() else "2"
EXAMPLES = int(os.environ.get("LARDER_HISTORIES", FEW))
pytestmark = pytest.mark.timeout(600 + 60 * EXAMPLES)

SLOW = settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@pytest.mark.push
@pytest.mark.parametrize("place", [Place.memory, Place.directory])
@SLOW
@given(history=histories())
def test_what_readers_see_is_what_the_source_has(place, history):
    with tempfile.TemporaryDirectory() as folder:
        Run(place(Path(folder))).history(history)


@pytest.mark.push
@settings(SLOW, max_examples=max(1, EXAMPLES // 4))
@given(histories(abandoned=False, most=6))
def test_histories_are_the_same_everywhere(history):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = [
            Place.memory(folder / "1", "1"),
            Place.memory(folder / "2", "2"),
            Place.directory(folder / "some" / "where"),
            Place.directory(folder / "e"),
        ]
        runs = [Run(place, checks=False) for place in places]
        for run in runs:
            run.history(history)
        assert runs[0].digests == runs[1].digests, "in memory: also the IDs"
        digests = [[pair and pair[1] for pair in run.digests] for run in runs]
        assert digests[0] == digests[2] == digests[3]
