from __future__ import annotations

import pytest

from larder.readers.data import expand
from larder.shards.packing import brace_patterns


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("a.tar", ["a.tar"]),
        ("", [""]),
        ("a-{08..11}.tar", ["a-08.tar", "a-09.tar", "a-10.tar", "a-11.tar"]),
        ("a-{3..3}", ["a-3"]),
        ("{a,b}-{0..1}", ["a-0", "a-1", "b-0", "b-1"]),
        ("a-{{0..1},5}.tar", ["a-0.tar", "a-1.tar", "a-5.tar"]),
        ("a-{,b}", ["a-", "a-b"]),
        ("a-{b}.tar", ["a-{b}.tar"]),
        ("a-{b{0..1}}", ["a-{b0}", "a-{b1}"]),
        ("a-{.tar", ["a-{.tar"]),
        ("a}-{0..1}", ["a}-0", "a}-1"]),
        ("{-{0..1}", ["{-0", "{-1"]),
    ],
)
def test_patterns_expand_as_in_a_shell(pattern: str, names: list[str]) -> None:
    assert expand(pattern) == names


@pytest.mark.parametrize(
    "numbers", [[0], [0, 1, 2], [3], [0, 2], [0, 1, 5, 6, 9], [999_999, 1_000_000]]
)
def test_patterns_of_shards_give_their_names(numbers: list[int]) -> None:
    names = [f"toy-train-{number:06d}.tar" for number in numbers]
    patterns = brace_patterns(names)
    assert [name for pattern in patterns for name in expand(pattern)] == names
