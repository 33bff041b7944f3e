"""Which segments have samples that must be checked again."""

import pytest

from larder.config.models.dataset import Dataset
from larder.config.shape import ImageOptions
from larder.versions.documents import SegmentDocument, Shape
from larder.versions.identity import weaker_check


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"validate": "header"}, ""),
        ({"validate": "decode"}, "validate was header"),
        ({"validate": "none"}, ""),
        ({"images": {"max_pixels": 9}}, "images.max_pixels was 1,000"),
        ({"images": {"max_pixels": 9}, "validate": "none"}, ""),
        ({"images": {"max_pixels": 2_000}}, ""),
    ],
)
def test_samples_are_checked_again_only_if_the_check_is_stricter(fields, reason):
    shape = Shape("webdataset", 1, 1_000, {}, None, images=ImageOptions(max_pixels=1_000))
    segment = SegmentDocument("d", "0" * 32, shape, "header", {}, ())
    named = {"name": "d", "source": {"url": "/s"}, "images": {"max_pixels": 1_000}}
    assert weaker_check(Dataset.model_validate(named | fields), segment) == reason
