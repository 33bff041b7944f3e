"""Which of the paths that cannot be listed are wanted."""

import pyarrow as pa
import pytest

from larder.errors import SHOWN_FAILURES, Failure, ObjectError
from larder.source.selection import Unlisted


def shown(paths: list[bytes], include: list[str], exclude: list[str]) -> list[str]:
    unlisted = Unlisted(include, exclude)
    for path in paths:
        unlisted(path, ObjectError("object.unreadable", "no", where="file:///x"))
    assert unlisted.failures.count == len(unlisted.failures.shown)
    return [failure.key for failure in unlisted.failures.shown]


@pytest.mark.parametrize(
    ("path", "include", "exclude", "wanted"),
    [
        (b"a/b.jpg", ["**"], [], True),
        (b"a/b.jpg", ["**/*.jpg"], [], True),
        (b"a/b.jpg", ["**/*.png"], [], False),
        (b"a/b", ["**/*.png"], [], True),
        (b"a/b", ["a/b/*.png"], [], True),
        (b"a/b", ["a/b/*.png"], ["a/b/**"], False),
        (b"a/b", ["a/*.png"], [], False),
        (b"a/b.jpg", ["**"], ["**/*.jpg"], False),
        (b"a/b\xff.jpg", ["**"], ["**/*.jpg"], False),
        (b"a/", ["**"], [], True),
        (b"a/", ["**/*.jpg"], ["**/*.png"], True),
        (b"a/", ["a/**"], [], True),
        (b"a/", ["ab/**"], [], False),
        (b"a/", ["b/**", "c"], [], False),
        (b"a/b/", ["a/**"], [], True),
        (b"a/b/", ["a/b/c/*.jpg"], [], True),
        (b"a/", ["**"], ["a/**"], False),
        (b"a/", ["**"], ["a/*"], True),
        (b"a/", ["**"], ["**/[!a]*"], True),
        (b"x/lost+found/", ["**"], ["**/lost+found/**"], False),
        (b"lost+found/", ["**"], ["lost+found/**"], False),
        (b"caf\xe9/", ["**"], ["caf*/**"], False),
    ],
)
def test_what_is_excluded_is_not_reported(
    path: bytes, include: list[str], exclude: list[str], wanted: bool
) -> None:
    assert len(shown([path], include, exclude)) == wanted


def test_a_repeated_listing_reports_nothing_twice() -> None:
    paths = [b"a", b"b/", b"b\xff", b"c"]
    assert shown([*paths[:3], *paths[1:]], ["**"], []) == ["a", "b/", "b\\xff", "c"]


def test_all_are_noted_and_may_have_keys() -> None:
    noted: list[Failure] = []
    unlisted = Unlisted(["**"], [], noted.append)
    for path in (b"_larder/copy/", b"a/", b"b"):
        unlisted(path, ObjectError("object.unreadable", "no", where="x"))
    assert noted == unlisted.failures.shown
    assert [(failure.key, failure.attempts) for failure in noted] == [("a/", 0), ("b", 0)]
    keys = pa.array(["a", "a/", "a/1", "ab", "b", "b/1", "bc"])
    assert unlisted.may_have(keys).tolist() == [False, True, True, False, True, True, False]
    assert unlisted.may_have(keys[:0]).tolist() == []


def test_with_too_many_paths_any_key_may_be_there() -> None:
    unlisted = Unlisted(["**"], [])
    for number in range(SHOWN_FAILURES + 1):
        unlisted(b"%09d" % number, ObjectError("object.unreadable", "no", where="x"))
    assert unlisted.may_have(pa.array(["x"])).tolist() == [True]
