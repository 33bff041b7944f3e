from collections import Counter
from itertools import combinations
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from larder.cache.fields import field_name
from larder.manifest.schemas import SAMPLE_ORDER
from larder.samples import statistics
from larder.samples.image_parts import is_image, role
from larder.samples.statistics import PartCount, SampleStatistics, SampleTally

Samples = list[tuple[str, dict[str, int]]]
"""Key, and the size of each part by extension."""

EXTS = [
    "jpg",
    "png",
    "seg.png",
    "seg.jpg",
    "v1.jpg",
    "v2.jpg",
    "json",
    "left.json",
    "label",
    "image",
]
samples = st.lists(
    st.dictionaries(st.sampled_from(EXTS), st.integers(0, 3), min_size=1), max_size=30
).map(lambda found: [(f"a/{number:02}", parts) for number, parts in enumerate(found)])


def count(found: Samples, step: int = 1_000) -> SampleStatistics:
    tally = SampleTally()
    for start in range(0, len(found), step):
        rows: list[dict[str, Any]] = [
            {
                "split": "train",
                "key": key,
                "label": None,
                "parts": [
                    {"ext": ext, "key": f"{key}.{ext}", "size_bytes": size, "etag": ""}
                    for ext, size in sorted(parts.items())
                ],
            }
            for key, parts in found[start : start + step]
        ]
        # A slice, as batches of a manifest are.
        batch = pa.RecordBatch.from_pylist([rows[0], *rows], schema=SAMPLE_ORDER).slice(1)
        tally.add(batch.column("key"), batch.column("parts"))
    return tally.statistics()


def test_examples_are_limited_and_the_count_is_complete():
    found = count([(f"s{n:05}", {"jpg": 1, "json": 1, "png": 1}) for n in range(2_500)], step=700)
    assert (found.merged.samples, len(found.merged.examples)) == (2_500, 3)
    assert (found.clashing.samples, len(found.clashing.examples)) == (2_500, 1_000)
    assert found.merged.examples[0] == ("s00000", ("jpg", "png"))
    assert found.clashing.examples[-1] == ("s00999", ("jpg", "png"))


def test_memory_is_bounded_where_every_name_has_another_extension():
    found = count([("2024", {f"{n:05}.jpg": 2 for n in range(3_000)}), ("2025", {"jpg": 1})])
    assert len(found.parts) == statistics.MOST_EXTENSIONS
    assert found.other_parts.objects + sum(part.objects for part in found.parts) == 3_001
    assert found.other_parts.bytes + sum(part.bytes for part in found.parts) == 6_001
    assert found.roles == ()
    assert found.merged.examples == (
        ("2024", ("00000.jpg", "00001.jpg", "00002.jpg", "00003.jpg")),
    )


@given(samples, st.integers(1, 7))
def test_counts_are_those_of_a_slow_count(found, step):
    counted = count(found, step)
    objects = Counter(ext for _, parts in found for ext in parts)
    sizes: Counter[str] = Counter()
    for _, parts in found:
        sizes.update(parts)
    assert counted.parts == tuple(
        PartCount(ext, many, sizes[ext])
        for ext, many in sorted(objects.items(), key=lambda pair: (-pair[1], pair[0]))
    )
    roles = Counter(each for _, parts in found for each in {role(ext) for ext in parts})
    assert {(one.exts, one.samples) for one in counted.roles} == {
        (tuple(sorted(ext for ext in objects if role(ext) == each)), many)
        for each, many in roles.items()
    }
    clashing = [key for key, parts in found if max(Counter(map(role, parts)).values()) > 1]
    merged = [
        key
        for key, parts in found
        if key in clashing or max(Counter(ext.split(".")[-1] for ext in parts).values()) > 1
    ]
    assert counted.clashing.samples == len(clashing)
    assert [key for key, _ in counted.clashing.examples] == clashing
    assert counted.merged.samples == len(merged)
    assert [key for key, _ in counted.merged.examples] == merged[:3]
    empty = [f"{key}.{ext}" for key, parts in found for ext in sorted(parts) if not parts[ext]]
    empty = [key for key in empty if is_image(key)]
    assert [key for key, _ in counted.empty_images.examples] == empty
    assert counted.empty_images.samples == len(empty)
    assert counted.most_parts == max((len(parts) for _, parts in found), default=0)


def test_parts_clash_exactly_where_they_would_be_one_field_of_a_decoded_cache():
    exts = [*EXTS, "key", "image.png", "image.x", "part.label", "seg.image", "tif", "x.webp", "x"]
    for one, other in combinations(exts, 2):
        alike = field_name(one, "decoded") == field_name(other, "decoded")
        assert alike == (role(one) == role(other)), (one, other)
        assert not alike or (is_image(one) and is_image(other))
