"""Growth of a dataset whose classes are divided: what is published keeps its split."""

from collections import Counter
from typing import Any

import pytest
from test_growth import Source

from tests.support.checker import Published

pytestmark = pytest.mark.push


def texts(classes: str, numbers: range) -> dict[str, bytes]:
    return {
        f"{name}/{at:02}.txt": f"{name} {at} ".encode() * 40 for name in classes for at in numbers
    }


def splits(fraction: float = 0.25, **more: Any) -> dict[str, Any]:
    fractions = {"train": 1 - fraction, "validation": fraction}
    return {"by": "hash", "seed": 7, "fractions": fractions, "stratify": True, **more}


def split_of(published: Published) -> dict[str, str]:
    return {each.key: split for split, found in published.samples.items() for each in found}


def by_class(found: dict[str, str]) -> dict[str, Counter[str]]:
    return {
        name: Counter(split for key, split in found.items() if key.startswith(name))
        for name in sorted({key[0] for key in found})
    }


FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 8_000},
    "splits": splits(),
}


@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_growth_packs_only_new_samples_and_fills_up_the_classes(tmp_path, kind):
    source = Source(tmp_path, kind, **FIELDS)
    document = source.prepare(texts("ab", range(8)))
    first = split_of(source.check()[document["version"]])
    assert by_class(first) == {name: Counter(train=6, validation=2) for name in "ab"}
    document = source.prepare(texts("ab", range(12)) | texts("c", range(4)))
    grown = source.check()[document["version"]]
    found = split_of(grown)
    assert {key: found[key] for key in first} == first
    assert by_class(found)["a"] == by_class(found)["b"] == Counter(train=9, validation=3)
    assert by_class(found)["c"] == Counter(train=3, validation=1)
    assert len(grown.version.segments) == 2
    assert grown.version.omitted == 0, "a sample was moved"
    compacted = source.prepare(texts("ab", range(12)) | texts("c", range(4)), compact=True)
    again = source.check()[compacted["version"]]
    assert len(again.version.segments) == 1
    assert split_of(again) == found
