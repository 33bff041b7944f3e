from typing import Any

import pytest
from pydantic import ValidationError

from larder.config.models.dataset import Dataset
from larder.config.shape import DEFAULTS, Feature, parse_feature


def dataset(features: Any, **fields: Any) -> Dataset:
    shards = {"format": "tfrecord", "features": features}
    return Dataset.model_validate(
        {"name": "d", "source": {"url": "/s"}, "labels": {}, "shards": shards, **fields}
    )


@pytest.mark.parametrize(
    ("text", "feature"),
    [
        ("image", Feature("image", "bytes")),
        ("key", Feature("key", "bytes")),
        ("key bytes", Feature("key", "bytes")),
        ("class", Feature("class", "bytes")),
        ("label", Feature("label", "int64")),
        ("label float", Feature("label", "float")),
        (".jpg", Feature("part", "bytes", "jpg")),
        (".label", Feature("part", "bytes", "label")),
        (".weight.txt float", Feature("part", "float", "weight.txt")),
        (".two words", Feature("part", "bytes", "two words")),
        (".é bytes", Feature("part", "bytes", "é")),
    ],
)
def test_a_feature_in_words(text, feature):
    assert parse_feature(text) == feature
    assert dataset({"a": text}).shards.options.features == {"a": feature}


@pytest.mark.parametrize(
    "features",
    [
        *({"a": text} for text in ("jpg", "", ".", ". int64", "Image", "label double", ".JPG", 1)),
        *({"a": text} for text in (".seg.jpeg", "key float")),
        *({name: "key"} for name in ("", "a b", "ü")),
        ["key"],
    ],
)
def test_what_are_no_features(features):
    with pytest.raises(ValidationError):
        dataset(features)


def test_no_features_are_not_the_default_and_only_records_have_them():
    assert dataset({}).shards.options.features == {}
    assert dataset(None).shards.options == DEFAULTS
    with pytest.raises(ValidationError):
        dataset({}, shards={"features": {}})


@pytest.mark.parametrize("text", ["label", "class", "label float"])
def test_a_label_needs_labels(text):
    assert dataset({"a": text})
    with pytest.raises(ValidationError):
        dataset({"a": text, "b": "key"}, labels=None)
