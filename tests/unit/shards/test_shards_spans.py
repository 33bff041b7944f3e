"""Ranges that are near each other are one span."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from larder.shards.reading.ranges import SPAN_BYTES, spans

GAP_BYTES = 64 << 10


class Range(NamedTuple):
    offset: int
    length: int


@pytest.mark.parametrize(
    ("ranges", "counts"),
    [
        ([], []),
        ([(5, 0)], [1]),
        ([(0, 10), (10, 10), (20 + GAP_BYTES, 10)], [3]),
        ([(0, 10), (11 + GAP_BYTES, 10)], [1, 1]),
        ([(0, 10), (10, SPAN_BYTES - 10)], [2]),
        ([(0, 10), (10, SPAN_BYTES - 9)], [1, 1]),
        ([(7, 3 * SPAN_BYTES), (7 + 3 * SPAN_BYTES, 1), (8 + 3 * SPAN_BYTES, 1)], [1, 2]),
        ([(0, 100), (10, 5), (50, 50)], [3]),  # they may overlap
    ],
)
def test_spans_have_no_long_gaps_and_are_no_longer_than_a_request(
    ranges: list[tuple[int, int]], counts: list[int]
) -> None:
    found = list(spans([Range(*each) for each in ranges]))
    assert [len(span) for span in found] == counts
    assert [tuple(each) for span in found for each in span] == ranges
