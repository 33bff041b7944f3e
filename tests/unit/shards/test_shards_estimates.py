import numpy as np
import pytest

from larder.config.shape import Transform
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples.parts import stored_ext
from larder.shards.sizes import expected_bytes, with_estimates
from tests.support.sample_orders import Content, order_samples

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
