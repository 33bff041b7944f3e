"""Different things have different identities, and equal ones the same, however they are written.

Texts are short and full of what could be taken for the end of something else.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from larder.config.models.dataset import Dataset, HashSplits
from larder.config.shape import BuilderUse, DecoderUse, Feature, FormatOptions, ImageShape
from larder.versions.documents import CacheFacts, CacheFile, Shape
from larder.versions.identity import (
    SegmentIdentity,
    ShardIdentity,
    cache_id,
    content_digest,
    inputs_digest,
    segment_id,
    version_id,
)
from larder.versions.omitted import Omitted

texts = st.text('a",[]:{}\n\\0', max_size=3)
names = st.sampled_from(["a", "b", "ab", "train", "test", "hash", "globs"])
digests = st.sampled_from(["0" * 64, "1" * 64])
numbers = st.integers(0, 2)
MISSING = object()


@st.composite
def pairs(draw: st.DrawFn, strategy: st.SearchStrategy[Any]) -> tuple[Any, Any]:
    """Two values that agree in most fields, and often in all."""
    one, other = draw(strategy), draw(strategy)
    return one, _mixed(draw, one, other)


def _mixed(draw: st.DrawFn, one: Any, other: Any) -> Any:
    both_dicts = isinstance(one, dict) and isinstance(other, dict)
    if both_dicts and not {*one, *other} & {"fractions"}:  # half of a rule is none
        fields = {
            name: _mixed(draw, one.get(name, MISSING), other.get(name, MISSING))
            for name in sorted({*one, *other}, key=str)
        }
        kept = {name: value for name, value in fields.items() if value is not MISSING}
        return kept or one  # no splits at all are refused
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        values = [_mixed(draw, *both) for both in zip(one, other, strict=True)]
        return type(one)(*values) if hasattr(one, "_fields") else tuple(values)
    return other if draw(st.integers(0, 7)) == 0 else one


globs = st.lists(st.sampled_from(["*", "**", "a", "a,b", "[ab]"]), min_size=1, max_size=3)
splits = st.one_of(
    st.dictionaries(names, globs, min_size=1, max_size=3),
    st.fixed_dictionaries(
        {
            "by": st.just("hash"),
            "seed": numbers,
            "fractions": st.lists(names, min_size=1, max_size=2, unique=True).map(
                lambda chosen: {name: 1 / len(chosen) for name in chosen}
            ),
        },
        optional={"group": st.sampled_from([None, "(a)", "(a)(b)"])},
    ),
)
labels = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {}, optional={"classes": st.none() | st.lists(names, max_size=3, unique=True)}
    ),
)
shards = st.fixed_dictionaries(
    {},
    optional={
        "bytes": st.sampled_from([1, 150_000_000]),
        "count_min": st.sampled_from([None, 1, 2]),
        "shuffle_seed": st.sampled_from([None, 0, 1]),
        "format": st.sampled_from(["webdataset", "columns"]),
    },
)
files = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "b"])},
    optional={
        "splits": splits,
        "labels": labels,
        "shards": shards,
        "validate": st.sampled_from(["none", "header", "decode"]),
        "on_bad_key": st.sampled_from(["fail", "skip"]),
        "on_bad_sample": st.sampled_from(["fail", "skip"]),
        "cache": st.sampled_from([None, {}, {"records": "encoded"}]),
        "mirror": st.booleans(),
        "description": texts.map(lambda text: text.replace("\0", "")),
        "growth": st.sampled_from([{}, {"mode": "rebuild"}, {"removals": "omit"}]),
    },
)


def meaning(dataset: Dataset) -> Any:
    """All that a run makes of the objects, as a value that compares."""
    found = dataset.splits
    if isinstance(found, HashSplits):
        rule: Any = ("by", found.seed, list(found.fractions.items()), found.group)
    else:
        rule = [(name, list(each)) for name, each in found.items()]
    return (
        dataset.name,
        rule,
        dataset.labels and (dataset.labels.source, dataset.labels.classes),
        dataset.shards,
        dataset.validate_,
        dataset.on_bad_key,
        dataset.on_bad_sample,
        dataset.cache,
    )


label_files = st.dictionaries(names, digests, max_size=2)
inputs = st.tuples(files, digests, label_files)


@given(pairs(inputs))
@example(
    (
        ({"name": "a", "labels": {"classes": []}}, "0", {}),
        ({"name": "a", "labels": {"classes": None}}, "0", {}),
    )
)
@example(
    (
        ({"name": "a", "splits": {"a": ["*"], "b": ["a"]}}, "0", {}),
        ({"name": "a", "splits": {"b": ["a"], "a": ["*"]}}, "0", {}),
    )
)
def test_inputs_are_equal_if_all_that_shapes_samples_is(pair):
    found = []
    for fields, inventory, its_files in pair:
        made = Dataset.model_validate({"source": {"url": "/s"}, **fields})
        digest = inputs_digest(made, inventory, its_files)
        found.append((digest, (meaning(made), inventory, its_files)))
    (digest, value), (other_digest, other_value) = found
    assert (digest == other_digest) == (value == other_value)


by_split = st.dictionaries(names, numbers, max_size=2)
segments = st.builds(
    SegmentIdentity,
    dataset=texts,
    samples=texts,
    shape=st.builds(
        Shape,
        format=st.sampled_from(["webdataset", "columns", ""]),
        format_version=numbers,
        bytes=st.sampled_from([0, 1, 150_000_000]),
        split_bytes=by_split,
        shuffle_seed=st.none() | numbers,
        options=st.builds(
            FormatOptions,
            features=st.none()
            | st.dictionaries(
                names,
                st.builds(
                    Feature,
                    source=st.sampled_from(["part", "label"]),
                    kind=st.sampled_from(["bytes", "float"]),
                    part=st.sampled_from(["", "txt"]),
                ),
                max_size=2,
            ),
            classes=st.lists(names, max_size=2).map(tuple),
            first_record=numbers,
        ),
    ),
    validate=st.sampled_from(["none", "header"]),
    on_bad_sample=st.sampled_from(["fail", "skip"]),
    first_shards=by_split,
)


def numbered(identity: SegmentIdentity) -> SegmentIdentity:
    """A first shard is 0 unless something else is said."""
    first = {split: number for split, number in identity.first_shards.items() if number}
    return identity._replace(first_shards=first)


@given(pairs(segments))
def test_segments_are_equal_if_all_that_shapes_them_is(pair):
    one, other = pair
    assert (segment_id(one) == segment_id(other)) == (numbered(one) == numbered(other))


decoders = st.lists(
    st.builds(
        DecoderUse,
        ext=names,
        use=names,
        parameters=st.sampled_from(["", '{"a":1}']),
        shape=st.sampled_from([None, (), (None,), (1, 2)]),
        version=st.sampled_from(["1", "2"]),
    ),
    max_size=2,
).map(tuple)
builders = st.builds(BuilderUse, use=names, inputs=names, digest=names)
images = st.builds(ImageShape, *3 * [st.integers(1, 2)])
kinds = st.sampled_from(["encoded", "decoded", "built"])
caches = st.tuples(
    texts, kinds, decoders, st.none() | builders, st.none() | images, st.integers(1, 2)
)


@given(pairs(caches))
def test_caches_are_equal_if_segment_kind_and_format_are(pair):
    ids = [cache_id(*covered, version=version) for *covered, version in pair]
    assert (ids[0] == ids[1]) == (pair[0] == pair[1])


masks = st.lists(st.booleans(), max_size=4)
versions = st.fixed_dictionaries(
    {
        "dataset": texts,
        "segments": st.lists(st.tuples(texts, st.none() | texts), max_size=3).filter(
            lambda uses: len({cache is None for _, cache in uses}) < 2  # all have one, or none
        ),
        "omitted": st.dictionaries(st.tuples(texts, names), masks, max_size=2),
        "classes": st.lists(texts, max_size=3),
        "split_names": st.sets(names, min_size=1, max_size=2),
        "skipped": st.none() | texts,
    }
)


def rows(masks: Mapping[Any, Sequence[bool]]) -> dict[Any, list[int]]:
    found = {place: np.flatnonzero(mask).tolist() for place, mask in masks.items()}
    return {place: each for place, each in found.items() if each}


@given(pairs(versions))
def test_versions_are_equal_if_training_sees_the_same(pair):
    ids, values = [], []
    for version in pair:
        omitted = {
            place: Omitted.of_mask(np.array(mask, np.bool_))
            for place, mask in version["omitted"].items()
        }
        ids.append(version_id(**{**version, "omitted": omitted}))
        values.append({**version, "omitted": rows(version["omitted"])})
    assert (ids[0] == ids[1]) == (values[0] == values[1])


ranges = st.sampled_from([(), ((0, 1),), ((0, 2),), ((0, 1), (2, 3))])
shard_lists = st.lists(
    st.builds(ShardIdentity, texts, texts, numbers, texts, ranges),
    max_size=3,
    unique_by=lambda shard: (shard.split, shard.name),
)
cache_files = st.builds(
    CacheFile, st.just("p"), numbers, texts, texts, numbers, segment=texts, split=texts
)
cache_facts = st.none() | st.builds(
    CacheFacts,
    st.sampled_from(["encoded", "decoded"]),
    st.dictionaries(texts, st.lists(cache_files, max_size=2).map(tuple), max_size=2),
)
contents = st.tuples(shard_lists, st.lists(texts, max_size=2), cache_facts)


@given(pairs(contents))
@example((([], ["a"], None), ([ShardIdentity("classes", "a", 0, "")], [], None)))
def test_content_is_equal_if_shards_classes_and_records_are(pair):
    found = []
    for shards, classes, cache in pair:
        records = cache and (
            cache.kind,
            {split: [file.digest for file in own] for split, own in cache.splits.items()},
        )
        found.append((content_digest(shards, classes, cache), (sorted(shards), classes, records)))
    (digest, value), (other_digest, other_value) = found
    assert (digest == other_digest) == (value == other_value)
