import pytest

from larder.units import format_names, format_time, table_lines


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


def test_times_are_those_of_utc_up_to_the_year_9999():
    times = [0, 1_795_810_706_000_000, 2**63 - 1]
    assert list(map(format_time, times)) == [
        "1970-01-01T00:00:00Z",
        "2026-11-27T20:18:26Z",
        "9999-12-31T23:59:59Z",
    ]


def test_a_table_has_numbers_to_the_right():
    rows = [["version", "size", "tags"], ["0123abcd", "1.5 MB", "latest"], ["4567", "", "v1"]]
    assert table_lines(rows) == [
        "version     size  tags",
        "0123abcd  1.5 MB  latest",
        "4567              v1",
    ]
