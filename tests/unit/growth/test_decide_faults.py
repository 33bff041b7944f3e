"""Segments whose shards have a fault are replaced."""

from dataclasses import replace

import numpy as np
import pytest

from larder.config.models.dataset import Growth
from larder.growth.compare import Changes
from larder.growth.decision import SegmentState, decide

FAULT = "shards before version 2 have a fault"
APPEND, OMIT, REBUILD = Growth(), Growth(removals="omit"), Growth(mode="rebuild")
NOTHING, ADDED = Changes(unchanged=20), Changes(unchanged=20, added=1)


def segments(first_bytes: int) -> list[SegmentState]:
    """The shards of the first segment have a fault."""
    names = {"a": first_bytes, "b": 100}
    columns = {name: np.array([[10, 10, 10, size]], np.int64).T for name, size in names.items()}
    first, second = (SegmentState(name, *each) for name, each in columns.items())
    return [replace(first, fault=FAULT), second]


@pytest.mark.parametrize("changes", [NOTHING, ADDED], ids=["unchanged", "added"])
@pytest.mark.parametrize(
    ("growth", "first_bytes", "kind", "kept"),
    [
        (APPEND, 100, "grow", ["b"]),
        (OMIT, 100, "grow", ["b"]),
        (APPEND, 101, "fresh", []),
        (OMIT, 101, "fresh", []),
        (REBUILD, 1, "fresh", []),
    ],
)
def test_a_fault_replaces_its_segments_alone_up_to_half(changes, growth, first_bytes, kind, kept):
    found = decide(segments(first_bytes), changes, growth)
    assert (found.kind, list(found.again), found.reason) == (kind, kept, FAULT)
    assert found.other is None


def test_a_reason_for_one_segment_comes_first():
    assert decide(segments(1), NOTHING, APPEND, fresh="larder compact").reason == "larder compact"
