"""What elements may be, values of numpy's own types too, and what they are when they are read."""

import math
from collections import namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import larder
from tests.support.errors import larder_error


def cached(elements: Any, **options: Any) -> Any:
    return larder.cache_validation_dataset("e", "v1", **options)(lambda: elements)()


def same(one: Any, other: Any) -> bool:
    if isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in other)
    if isinstance(other, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(other, str | bytes):
        return type(one) is type(other) and one == other
    one, other = np.asarray(one), np.asarray(other)
    return one.dtype == other.dtype and np.array_equal(one, other)


@pytest.mark.parametrize(
    "element",
    [
        np.arange(6).reshape(2, 3).astype("complex64"),
        np.float16(3),
        np.zeros((0, 3), np.float32),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        7,
        -0.5,
        1j,
        True,
        "text \u00e9",
        b"bytes\0",
        "",
        np.array([["a", "bc"], ["", "d"]], object),
        np.array([b"a\0", b""], object),
        (1, 2.0),
        {"image": np.ones((2, 2), np.uint8), "label": 1},
        {"key": "k", "nested": ({"a/b": 1, "a.b": (2,)}, b"x")},
        ((((1,),),),),
    ],
    ids=str,
)
def test_an_element_is_read_as_it_was(element):
    (read,) = cached([element])
    assert same(read, element), read


def test_big_endian_numbers_and_lists_of_strings_become_plain_ones():
    (read,) = cached([(np.arange(3, dtype=">i4"), np.array(["a", "bc"]))])
    assert same(read, (np.arange(3, dtype="=i4"), np.array(["a", "bc"], object)))


def test_dimensions_that_differ_are_lists_in_a_batch_and_others_arrays():
    elements = [{"same": np.full(3, n), "odd": np.arange(n), "s": ["a"][0] * n} for n in range(4)]
    assert all(map(same, cached(elements), elements))
    (batch,) = cached(elements, batch_size_per_rank=4)
    assert batch["same"].shape == (4, 3)
    assert [row.tolist() for row in batch["odd"]] == [[], [0], [0, 1], [0, 1, 2]]
    assert batch["s"].tolist() == ["", "a", "aa", "aaa"]


Named = namedtuple("Named", ["a"])


@pytest.mark.parametrize(
    "element",
    [
        None,
        [1, 2],
        {},
        (),
        {1: 2},
        {"a\nb": 1},
        {"a": None},
        {1, 2},
        Named(1),
        object(),
        10**30,
        np.array("2026-01-01", "M8[D]"),
        np.zeros(1, [("a", "i4")]),
        np.array([1, "a"], object),
        np.array([b"a", "a"], object),
        np.zeros(1, np.longdouble),
    ],
    ids=lambda element: type(element).__name__,
)
def test_other_elements_are_refused_by_name(element, storage):
    with larder_error("cache.schema", "the decorated function"):
        cached([element])
    assert not list(storage.rglob("*.mdb"))


def test_nesting_has_an_end():
    element: Any = 1
    for _ in range(40):
        element = (element,)
    with larder_error("cache.schema"):
        cached([element])


@pytest.mark.parametrize(
    "other", [2.0, (1,), {"a": 1}, np.zeros(1, np.int64), "a", np.int32(1)], ids=repr
)
def test_an_element_that_differs_from_the_first_is_named(other, storage):
    with larder_error("cache.schema") as caught:
        cached([1, 1, other])
    assert "element 2" in str(caught.value)
    assert not list(storage.rglob("*.mdb"))


@pytest.mark.parametrize("result", [None, 7, "text", {"a": 1}, [], ()], ids=repr)
def test_what_is_no_dataset_is_refused(result, storage):
    with larder_error("config.invalid_value"):
        cached(result)
    assert not list(storage.rglob("*.mdb"))


def test_an_exception_of_the_function_is_its_own_and_leaves_nothing(storage):
    def broken() -> Iterator[int]:
        yield 1
        raise ZeroDivisionError

    decorate = larder.cache_train_dataset("e", "v1")
    with pytest.raises(ZeroDivisionError):
        decorate(broken)()
    assert not [*storage.rglob("*.mdb"), *storage.rglob("*.json")]
    assert list(decorate(lambda: range(3))()) == [0, 1, 2]


def test_an_endless_dataset_stops_at_its_limits(storage):
    def endless() -> Iterator[Any]:
        while True:
            yield np.zeros(100_000)

    for limit in ({"max_bytes": "2 MB"}, {"max_records": 3}):
        with larder_error("run.endless"):
            larder.cache_train_dataset("e", "v1", **limit)(endless)()
    assert not list(storage.rglob("*.mdb"))
    elements = larder.cache_train_dataset("e", "v1", max_records=3)(lambda: range(3))()
    assert math.fsum(elements) == 3


def cached_values(*elements: Any, version: str = "v1") -> list[Any]:
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
    for read in (*cached_values(value, plain), *cached_values(plain, value, version="v2")):
        assert type(read) is type(plain)
        assert read == plain


def test_strings_of_numpy_may_stand_in_arrays_of_objects():
    (read,) = cached_values({"names": np.array([np.str_("a"), "b"], object), "key": np.str_("k")})
    assert (read["names"].tolist(), read["key"]) == (["a", "b"], "k")


@pytest.mark.parametrize("mixed", [[np.str_("a"), b"b"], [np.bytes_(b"a"), 1]], ids=repr)
def test_strings_of_two_kinds_are_refused(mixed):
    with larder_error("cache.schema"):
        cached_values(np.array(mixed, object))


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
        cached_values(*elements)
    assert ".x is a masked array" in str(caught.value)
    assert not list(storage.rglob("*.mdb"))
