import re

import pyarrow as pa
import pytest
from pydantic import ValidationError

from larder.config.models.joins import Samples
from larder.config.patterns import part_pattern
from larder.samples.parts import Joins
from tests.support.errors import larder_error


def split(pattern: str, *keys: str) -> list[tuple[str, str] | None]:
    """What a pattern makes of keys, by the column; each also one by one."""
    rows = Joins([pattern]).split(pa.array(keys, pa.string())).to_pylist()
    regex = re.compile(part_pattern(pattern).regex.replace("(?s:.*)", r"[\s\S]*"))
    for key, row in zip(keys, rows, strict=True):
        found = regex.search(key)
        assert (found and found["id"]) == row["sample"], key
    return [(row["sample"], row["ext"]) if row["sample"] is not None else None for row in rows]


def test_the_placeholder_is_the_sample_and_may_have_slashes():
    keys = ["images/a.jpg", "images/x/y.z/a.jpg", "images/a.b.jpg", "images/a.jpgx", "other/a.jpg"]
    found = split("images/{id}.jpg", *keys)
    assert found == [("a", "jpg"), ("x/y.z/a", "jpg"), None, None, None]
    assert split("**/+(b)/{id}$.txt", "+(b)/x$.txt", "a/c/+(b)/x$.txt", "aab/x$.txt") == [
        ("x", "txt"),
        ("x", "txt"),
        None,
    ]


def test_wildcards_tell_objects_of_one_pattern_apart():
    assert split("frames/{id}/*.jpg", "frames/v/0001.jpg", "frames/s/v/.jpg") == [
        ("v", "0001.jpg"),
        ("s/v", "jpg"),
    ]
    assert split(
        "cam[12]/{id}_*.{jpg,png}", "cam2/x_left.png", "cam3/x_left.png", "cam1/y_.jpg"
    ) == [("x", "2.left.png"), None, ("y", "1.jpg")]


def test_the_first_pattern_that_matches_counts_and_names_come_first():
    joins = Joins({"special": "a/{id}_x.jpg", "any": "a/{id}.jpg", "text": "a/{id}.*"})
    keys = pa.array(["a/1_x.jpg", "a/2.jpg", "a/2.txt", "b/1.jpg"])
    assert [tuple(row.values()) for row in joins.split(keys).to_pylist()] == [
        ("1", "special.jpg", 0),
        ("2", "any.jpg", 1),
        ("2", "text.txt", 2),
        (None, None, None),
    ]
    assert joins.split(pa.array([], pa.string())).num_rows == 0


@pytest.mark.parametrize(
    "pattern",
    [
        "images/a.jpg",
        "{a}/{b}.jpg",
        "{a,b}.jpg",
        "{id}/x",
        "{id}.",
        "a.b/{id}",
        "{id}*.jpg",
        "?{id}.jpg",
        "{id}/**/x.jpg",
        "{id}.[",
        "[/{id}.jpg",
        "{id}." + "{a," * 5_000,  # a deep glob is refused, not crashed on
    ],
)
def test_invalid_patterns_are_refused(pattern):
    with larder_error("config.invalid_value"):
        part_pattern(pattern)
    with pytest.raises(ValidationError):
        Samples.model_validate({"join": [pattern]})


@pytest.mark.parametrize(
    "fields",
    [
        {"join": {}},
        {"join": [f"{at}/{{id}}.x" for at in range(33)]},
        {"join": {"Image": "{id}.x"}},
        {"join": {"a": "{id}.x", "b": "{id}.x"}},
        {"join": ["{id}.x", "{key}.y"]},
        {"missing": "ignore"},
        {"missing": False},
        *({"join": join} for join in (True, 3, "{id}.x", ["x.jpg"], [3])),
        *({"join": join} for join in ({"a": "x.jpg"}, {"a": 3}, {"A": "{id}.x"})),
    ],
)
def test_a_mistake_in_a_join_is_reported_once(fields):
    """It was also said of a mapping with a mistake that a list was expected."""
    with pytest.raises(ValidationError) as caught:
        Samples.model_validate(fields)
    assert len(caught.value.errors()) == 1
