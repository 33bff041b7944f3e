from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.config.patterns import expand_braces
from larder.shards.formats import shard_format
from larder.shards.model import ShardPlan
from larder.shards.packing import brace_patterns, plan_shards

WEBDATASET = shard_format("webdataset")


def totals(**sizes: list[int]) -> dict[str, Any]:
    return {split: np.cumsum(group) for split, group in sizes.items()}


def test_shards_are_named_and_counted_by_split_and_rows_over_all():
    ends = totals(train=[1024, 1024, 1024], test=[], validation=[9000, 1024])
    assert list(plan_shards(ends, 3072, "imagenet", WEBDATASET)) == [
        ShardPlan("train", 0, "imagenet-train-000000.tar", 0, 2, 3072),
        ShardPlan("train", 1, "imagenet-train-000001.tar", 2, 1, 2048),
        ShardPlan("validation", 0, "imagenet-validation-000000.tar", 3, 1, 10024),
        ShardPlan("validation", 1, "imagenet-validation-000001.tar", 4, 1, 2048),
    ]


def test_numbers_go_on_from_the_segments_before():
    ends = totals(train=[1024, 1024, 1024], test=[1024], validation=[1024])
    first = {"train": 950, "test": 0, "other": 7}
    plans = list(plan_shards(ends, 3072, "d", WEBDATASET, first_shards=first))
    assert [(plan.name, plan.index, plan.first_row) for plan in plans] == [
        ("d-train-000950.tar", 950, 0),
        ("d-train-000951.tar", 951, 2),
        ("d-test-000000.tar", 0, 3),
        ("d-validation-000000.tar", 0, 4),
    ]


def test_a_total_in_names_is_the_end_of_the_segment():
    ends = totals(train=[400, 400, 400], test=[400])
    parquet = shard_format("parquet")
    target_bytes = 800 + parquet.empty_bytes
    plans = plan_shards(ends, target_bytes, "d", parquet, first_shards={"train": 950})
    assert [(plan.name, plan.index) for plan in plans] == [
        ("d-train-00950-of-00952.parquet", 950),
        ("d-train-00951-of-00952.parquet", 951),
        ("d-test-00000-of-00001.parquet", 0),
    ]


@pytest.mark.parametrize(
    ("numbers", "patterns"),
    [
        ([], []),
        ([4], ["000004"]),
        ([0, 2], ["000000", "000002"]),
        ([0, 1, 5, 6, 9], ["{000000..000001}", "{000005..000006}", "000009"]),
        ([999_999, 1_000_000, 1_000_001], ["999999", "{1000000..1000001}"]),
    ],
)
def test_patterns(numbers, patterns):
    found = brace_patterns([f"d-train-{number:06d}.tar" for number in numbers])
    assert found == tuple(f"d-train-{pattern}.tar" for pattern in patterns)


@given(names=st.lists(st.text("ab0129.", min_size=1, max_size=6), max_size=5))
@example(names=["0a", "0"])
def test_names_that_differ_in_more_than_a_number_are_their_own_patterns(names):
    patterns = brace_patterns(names)
    assert [name for pattern in patterns for name in expand_braces(pattern)] == names
