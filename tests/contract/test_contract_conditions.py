"""What a run finds out about the conditions of every store is what the table of gaps says."""

import pytest
from store_gaps import GAPS
from store_place import Place

from larder.errors import SupersededError
from larder.versions.publish import Conditions, probe_conditions, read_conditions
from larder.versions.tags import Tag, move_tag, read_tag


def expected(place: Place) -> Conditions:
    return Conditions(
        if_absent=(place.kind, "put if absent") not in GAPS,
        if_match=(place.kind, "put if match") not in GAPS,
    )


def test_conditions_are_found_out_once_and_nothing_else_is_left(place, store):
    assert read_conditions(store) is None
    assert probe_conditions(store) == expected(place)
    (info,) = [info for page in place.open().list() for info in page]
    assert info.key == "work/conditions.json"
    assert read_conditions(place.open()) == expected(place)
    assert probe_conditions(place.open()) == expected(place)
    assert store.head(info.key).etag == info.etag, "it is not asked again"


def test_a_tag_moves_on_every_store(place, store):
    conditions = probe_conditions(store)
    a, b, c = (letter * 32 for letter in "abc")
    inputs = [digit * 64 for digit in "01234"]
    assert move_tag(store, "latest", a, inputs[1], None, conditions)
    assert not move_tag(place.open(), "latest", a, inputs[1], None, conditions)
    assert move_tag(store, "latest", a, inputs[2], a, conditions)
    assert move_tag(place.open(), "latest", b, inputs[3], a, conditions)
    for late in (None, a):
        with pytest.raises(SupersededError, match=f"names version {b} now"):
            move_tag(store, "latest", c, inputs[4], late, conditions)
    tag = read_tag(place.open(), "latest")
    assert (tag, list(tag.versions())) == (Tag(b, inputs[3], tag.history), [b, a])
