"""Omitted rows and listed shards, beside plain lists that say the same."""

import uuid
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import StoredFile, seal
from larder.segments.derived_files import listed_splits
from larder.store import open_store
from larder.versions import layout, omitted
from larder.versions.documents import SegmentUse, SplitFacts, VersionDocument, parse_document
from larder.versions.index import Shard, listed_shards
from larder.versions.omitted import Omitted, encode_omitted, read_omitted
from tests.support.memory import forget

masks = st.lists(st.booleans(), max_size=30)


def of_rows(mask: list[bool]) -> Omitted:
    return Omitted.of_mask(np.array(mask, np.bool_))


@given(masks, st.integers(0, 40), st.integers(0, 40))
def test_a_mask_of_some_rows_is_that_of_the_list(mask, first, rows):
    found = of_rows(mask)
    expected = [row < len(mask) and mask[row] for row in range(first, first + rows)]
    assert found.mask(first, rows).tolist() == expected
    assert found.count == sum(mask)
    assert of_rows(expected).mask(0, rows).tolist() == expected


@given(masks, st.data())
def test_ranges_are_sorted_disjoint_and_apart(mask, data):
    edges = of_rows(mask).ranges.ravel().tolist()
    assert edges == sorted(set(edges))
    block = data.draw(st.integers(1, 4))
    before, omitted._BLOCK = omitted._BLOCK, block
    try:
        assert of_rows(mask).ranges.ravel().tolist() == edges, "wherever a block ends"
    finally:
        omitted._BLOCK = before


@given(masks, st.integers(0, 20), st.integers(1, 20))
def test_ranges_of_a_segment_are_cut_to_a_split(mask, first, rows):
    found = Omitted.of_ranges(of_rows(mask).ranges, first, rows)
    assert found == of_rows(mask[first : first + rows])


@given(masks, st.data())
def test_numbers_of_samples_are_those_that_are_left(mask, data):
    left = [row for row in range(len(mask) + 5) if row >= len(mask) or not mask[row]]
    numbers = data.draw(st.lists(st.integers(0, len(left) - 1)))
    assert of_rows(mask).rows_of(numbers).tolist() == [left[number] for number in numbers]


S, T, V = "5" * 32, "6" * 32, "7" * 32
places = st.tuples(st.sampled_from([S, T]), st.sampled_from(["train", "test"]))


@given(st.dictionaries(places, masks), st.integers(0, 12))
def test_what_is_written_is_read(found, inline):
    bucket = uuid.uuid4().hex
    root = open_store(f"memory://{bucket}/")
    before, omitted.MAX_INLINE_RANGES = omitted.MAX_INLINE_RANGES, inline
    try:
        given_rows = {place: of_rows(mask) for place, mask in found.items()}
        encoded, data = encode_omitted(given_rows)
    finally:
        omitted.MAX_INLINE_RANGES = before
    assert (data is None) == (sum(len(rows.ranges) for rows in given_rows.values()) <= inline)
    files = []
    if data is not None:
        sha256 = sha256_hex(data)
        files.append(StoredFile(layout.omitted_key(V, sha256), len(data), sha256, "omitted"))
        root.put(files[0].path, data)
    uses = tuple(
        SegmentUse(
            segment, {split: rows for (use, split), rows in encoded.items() if use == segment}
        )
        for segment in (S, T)
    )
    version = VersionDocument(
        "d", V, "8" * 64, "9" * 64, uses, {"train": SplitFacts(0, 0, 0, ())}, (), tuple(files), None
    )
    again = parse_document(VersionDocument, seal(version), "x")
    assert again.omitted == sum(map(sum, found.values()))
    assert read_omitted(root, again) == {
        place: rows for place, rows in given_rows.items() if rows.count
    }
    forget(bucket)


shards = st.lists(
    st.tuples(
        st.sampled_from(["test", "train"]),
        st.lists(st.booleans(), min_size=1, max_size=5),  # its rows: which are omitted
        st.integers(1, 3),  # its files
        st.booleans(),  # whether a number is left out before it
    ),
    max_size=10,
).map(lambda found: sorted(found, key=lambda shard: shard[0]))


def published(found: list[Any]) -> list[Shard]:
    all_shards, number = [], 0
    for split, mask, files, gap in found:
        number += 1 + gap
        names = [f"d-{split}-{number:06d}.{ext}" for ext in ("tar", "idx1", "idx2")[:files]]
        of_shard = (
            StoredFile(layout.shard_key("s", split, name), 10 + file, f"{number}", "shard")
            for file, name in enumerate(names)
        )
        all_shards.append(Shard("s", split, 0, len(mask), 0, tuple(of_shard)))
    return all_shards


@given(shards)
@example([("train", [True, True], 2, False), ("train", [True, False], 2, False)])
def test_listed_shards_are_those_with_samples_left(found):
    gone = {
        ("s", split): of_rows([row for own, mask, _, _ in found if own == split for row in mask])
        for split in ("train", "test")
    }
    listed = list(listed_shards(published(found), gone))
    live = [
        (shard.name, mask, files)
        for shard, (_, mask, files, _) in zip(published(found), found, strict=True)
        if not all(mask)
    ]
    assert [shard.name for shard in listed] == [name for name, _, _ in live]
    for shard, (_, mask, files) in zip(listed, live, strict=True):
        assert len(shard.files) == files
        assert shard.samples == mask.count(False)
        assert shard.bytes == sum(10 + file for file in range(files))
        omitted_rows = [row for start, stop in shard.omitted for row in range(start, stop)]
        assert omitted_rows == [row for row, out in enumerate(mask) if out]


def test_a_split_of_several_segments_is_all_of_them_in_order():
    def shard(segment: str, name: str, omitted: tuple[tuple[int, int], ...] = ()) -> Shard:
        file = StoredFile(f"segments/{segment}/shards/a/{name}", 10, "0" * 64, "shard")
        return Shard(segment, "a", 0, 5, 0, (file,), (), omitted)

    patterns = ("segments/b/shards/a/x-{0..1}.tar", "segments/a/shards/a/x-7.tar")
    shards = [shard("b", "x-0.tar"), shard("b", "x-1.tar", ((0, 2),)), shard("a", "x-7.tar")]
    assert listed_splits(shards) == {"a": SplitFacts(15, 3, 30, patterns, 2)}
    assert listed_splits([]) == {}
