"""Plans of shards: names, numbers, patterns, and sizes that are estimated."""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from larder.config.patterns import expand_braces
from larder.config.shape import Transform
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.parts import stored_ext
from larder.shards.formats import shard_format
from larder.shards.model import ShardPlan
from larder.shards.packing import brace_patterns, plan_shards
from larder.shards.sizes import expected_bytes, with_estimates
from tests.support.sample_orders import Content, order_samples

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


SIZES = np.array([100, 20_000, 10**6], np.int64)


@pytest.mark.parametrize(
    ("ext", "options", "expected"),
    [
        ("jpg", {"resize": 256}, [100, 20_000, 31_183]),
        ("jpg", {"resize": 256, "quality": 75}, [100, 19_168, 19_168]),
        ("jpg", {"resize": 256, "quality": 80}, [100, 20_000, 21_899]),
        ("jpg", {"resize": 256, "quality": 1}, [100, 3_330, 3_330]),
        ("jpg", {"resize": 256, "quality": 100}, [100, 20_000, 87_981]),
        ("jpg", {"resize": 256, "enlarge": True}, [31_183] * 3),
        ("png", {"resize": 64}, [100, 10_156, 10_156]),
        ("seg.png", {"resize": 256, "masks": ("seg",)}, [100, 6_061, 6_061]),
        ("jpg", {"quality": 75}, [100, 20_000, 10**6]),
    ],
)
def test_estimates(ext, options, expected):
    assert expected_bytes(ext, SIZES, Transform(**options)).tolist() == expected


def test_only_images_are_estimated(store):
    large = bytes(10**6)
    parts: list[dict[str, bytes]] = [{"jpg": large, "json": large}, {}, {"seg.png": large}]
    batch = order_samples(store, [Content(f"{at}", each) for at, each in enumerate(parts)])
    transform = Transform(resize=64, quality=90, masks=("seg",))
    for start in range(3):  # a slice has offsets that do not begin at 0
        found = with_estimates(batch.slice(start), transform)
        sizes = [[each["size_bytes"] for each in row["parts"]] for row in found.to_pylist()]
        assert sizes == [[2_511, 10**6], [], [941]][start:]
        assert found.schema == SAMPLE_ORDER
        assert found.drop_columns(["parts"]) == batch.slice(start).drop_columns(["parts"])
    assert with_estimates(batch, None) is batch


@pytest.mark.parametrize(
    ("ext", "format_", "expected"),
    [
        ("jpg", "keep", "jpg"),
        ("bmp", "jpeg", "jpg"),
        ("left.bmp", "png", "left.png"),
        ("json", "png", "json"),
        ("seg.bmp", "keep", "seg.png"),
        ("seg.png", "jpeg", "seg.png"),
        ("seg.json", "jpeg", "seg.json"),
    ],
)
def test_the_extension_is_that_of_the_format(ext, format_, expected):
    assert stored_ext(ext, Transform(format=format_, masks=("seg",))) == expected
