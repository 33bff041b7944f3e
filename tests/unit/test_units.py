import pytest

from larder.units import format_names


@pytest.mark.parametrize(
    ("names", "total", "text"),
    [
        ("", None, ""),
        ("ab", None, "a, b"),
        ("abcd", None, "a, b, c, d"),
        ("abcde", None, "a, b, c and 2 more"),
        ("abcd", 4, "a, b, c, d"),
        ("abcd", 1_004, "a, b, c and 1,001 more"),
    ],
)
def test_a_list_of_names_never_hides_a_single_one(names, total, text):
    assert format_names(list(names), 3, total=total) == text
