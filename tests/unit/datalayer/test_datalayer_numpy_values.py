"""Values of numpy's own types: its strings are plain ones, and a mask is never lost."""

from typing import Any

import numpy as np
import pytest

import larder
from tests.support.errors import larder_error


def cached(*elements: Any, version: str = "v1") -> list[Any]:
    return [*larder.cache_validation_dataset("e", version)(lambda: iter(elements))()]


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.str_("text é\0"), "text é\0"),
        (np.str_(""), ""),
        (np.bytes_(b"bytes\0"), b"bytes\0"),
        (np.array(["a", "bc"])[1], "bc"),
        (np.array([b"a", b"bc"])[1], b"bc"),
    ],
    ids=repr,
)
def test_strings_of_numpy_are_plain_ones(value, plain):
    for read in (*cached(value, plain), *cached(plain, value, version="v2")):
        assert type(read) is type(plain)
        assert read == plain


def test_strings_of_numpy_may_stand_in_arrays_of_objects():
    (read,) = cached({"names": np.array([np.str_("a"), "b"], object), "key": np.str_("k")})
    assert (read["names"].tolist(), read["key"]) == (["a", "b"], "k")


@pytest.mark.parametrize("mixed", [[np.str_("a"), b"b"], [np.bytes_(b"a"), 1]], ids=repr)
def test_strings_of_two_kinds_are_refused(mixed):
    with larder_error("cache.schema"):
        cached(np.array(mixed, object))


@pytest.mark.parametrize(
    "masked",
    [
        np.ma.array([1, 2], mask=[True, False]),
        np.ma.array([1.0, 2.0]),
        np.ma.masked,
        np.ma.array(["a", "b"], mask=[True, False]),
    ],
    ids=repr,
)
@pytest.mark.parametrize("place", ["first", "later"])
def test_a_masked_array_is_refused_by_name(masked, place, storage):
    plain = {"x": np.ma.getdata(masked)}
    elements = [{"x": masked}] if place == "first" else [plain, {"x": masked}]
    with larder_error("cache.schema", "the decorated function") as caught:
        cached(*elements)
    assert ".x is a masked array" in str(caught.value)
    assert not list(storage.rglob("*.mdb"))
