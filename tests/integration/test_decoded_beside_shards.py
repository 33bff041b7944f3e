"""Loaders of a decoded cache and of shards that are decoded, mixed; and functions that keep."""

import numpy as np
import pytest
from pipeline_lab import directory_lab, images

import larder

COLUMNS = ["key", "label", "image"]
OPTIONS = {"batch_size": 8, "shuffle": True, "seed": 3, "columns": COLUMNS}


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """The addresses of the same images, decoded in a cache, and in shards alone."""
    folder, places = tmp_path_factory.mktemp("mixed"), []
    for name, cache in (("cached", {"records": "decoded"}), ("shards", None)):
        lab = directory_lab(folder / name, images(each=24), cache=cache)
        lab.prepare()
        places.append(f"{lab.storage}/larder/d")
    return places


def loaders(places, workers, **options):
    cached, shards = map(larder.open, places)
    given = OPTIONS | {"workers": workers} | options
    return cached.loader("train", **given), shards.loader("train", decode=True, **given)


def same(one, other):
    assert list(one) == list(other)
    assert one["key"] == other["key"]
    for name in set(one) - {"key"}:
        assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize("by", ["batch", "sample"])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_mix_has_the_samples_of_its_loaders(places, by, workers):
    def mix(count):
        weighted = [(loader, 1) for loader in loaders(places, count)]
        return larder.mix(weighted, seed=1, by=by, batches=36)

    for made, expected in zip(mix(workers), mix(0), strict=True):
        same(made, expected)


class Keeping:
    """Returns with each sample whether an earlier one that it kept is as it was."""

    def __init__(self):
        self.kept = []

    def __call__(self, sample, *_):
        kept, self.kept = self.kept, [*self.kept[-40:], (sample, sample["image"].copy())]
        is_same = all(np.array_equal(one["image"], copy) for one, copy in kept)
        return {"key": sample["key"], "is_same": np.array(is_same)}

    def collated(self, samples):
        return {"is_same": np.array([self(sample)["is_same"] for sample in samples])}

    def image(self, value):
        return self({"image": value, "key": ""})["is_same"]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["map", "collate", "transforms"])
def test_what_a_function_keeps_stays_as_it_was(places, kind, workers):
    keeping = Keeping()
    given = {
        "map": keeping,
        "collate": keeping.collated,
        "transforms": {"image": keeping.image},
    }
    for loader in loaders(places, workers, **{kind: given[kind]}):
        for batch in loader:
            assert np.all(batch["image" if kind == "transforms" else "is_same"])
