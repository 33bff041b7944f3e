"""Which keys a listing is about: columns of globs, and Larder's own files."""

import pyarrow as pa
import pytest

from larder.config.patterns import compile_globs
from larder.errors import ConfigError, Failure, ObjectError
from larder.progress import NullProgress
from larder.source.inventory import take_inventory
from larder.source.selection import KeyRule, Unlisted, without_own
from larder.store.base import ObjectInfo
from tests.support.errors import larder_error
from tests.support.memory import MemoryStore, forget

KEYS = ["a", "a\nb", "a/b.jpg", "a/é.jpg", "train/x/1.JPEG", "\U0001f600/.b", "*"]
KEYS += ["a.b/c", "a.b/c.d.e", "a/b.jpg/c", "a/b.", "a.\n", ".a"]


@pytest.mark.parametrize(
    "globs",
    [
        *[("**",), ("*",), ("**/*.jpg", "train/**"), ("[*]",), ("{a,b}/?.jpg",), ("a?b",), ()],
        *[("a",), ("a.b/c", "*.JPEG"), ("a/b.*",), ("a.*", "\U0001f600/.*"), (".*", "a.b/c.*")],
        *[("a.b/c.d.*", "a/b.jpg"), ("a/b", "*/b.*"), ("**", "a")],
    ],
)
def test_columns_are_matched_as_single_keys_are(globs):
    single = compile_globs(globs)
    expected = [single is not None and single.fullmatch(key) is not None for key in KEYS]
    assert KeyRule(globs)(pa.array(KEYS)).tolist() == expected


def test_a_hundred_thousand_keys_are_looked_up():
    rule = KeyRule([f"{number:030}{end}" for number in range(100_000) for end in ("", ".*")])
    assert rule(pa.array([f"{7:030}", f"{7:030}.jpg", "7", f"{7:030}/7.jpg"])).tolist() == [
        *(True, True, False, False)
    ]


@pytest.mark.push
def test_more_globs_than_a_regular_expression_takes_are_refused():
    with larder_error("config.invalid_value"):
        KeyRule([letter * 400_000 + "*" for letter in "ab"])


def pages(*keys: str, size: int) -> list[list[ObjectInfo]]:
    infos = [ObjectInfo(key, 1, "e", 0) for key in keys]
    return [infos[at : at + size] for at in range(0, len(infos), size)]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
def test_own_files_are_left_out_wherever_pages_end(size):
    own = ("_larder/", "_larder/copy/x")
    keys = ("A", "_larder", "_larder-", *own, "_larder0", "_larderer/x", "a")
    left = [info.key for page in without_own(pages(*keys, size=size)) for info in page]
    assert left == [key for key in keys if key not in own]


def test_an_inventory_has_no_own_files_and_is_empty_without_others(tmp_path):
    store = MemoryStore("selection")
    try:
        store.put("_larder/copy/copy.json", b"{}")
        with pytest.raises(ConfigError):
            take_inventory(store, ("**",), (), tmp_path / "i.parquet", NullProgress())
        store.put("b/_larder/x", b"x")
        found = take_inventory(store, ("**",), (), tmp_path / "i.parquet", NullProgress())
        assert (found.objects, found.listed, found.bytes) == (1, 1, 1)
    finally:
        forget("selection")


def shown(paths: list[bytes], include: list[str], exclude: list[str]) -> list[str]:
    unlisted = Unlisted(include, exclude)
    for path in paths:
        unlisted(path, ObjectError("object.unreadable", "no", where="file:///x"))
    assert unlisted.failures.count == len(unlisted.failures.shown)
    return [failure.key for failure in unlisted.failures.shown]


@pytest.mark.parametrize(
    ("path", "include", "exclude", "wanted"),
    [
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
        (b"a/b/", ["a/b/c/*.jpg"], [], True),
        (b"a/", ["**"], ["a/**"], False),
        (b"a/", ["**"], ["a/*"], True),
        (b"a/", ["**"], ["**/[!a]*"], True),
        (b"x/lost+found/", ["**"], ["**/lost+found/**"], False),
        (b"caf\xe9/", ["**"], ["caf*/**"], False),
    ],
)
def test_what_is_excluded_is_not_reported(path, include, exclude, wanted):
    assert len(shown([path], include, exclude)) == wanted


def test_a_repeated_listing_reports_nothing_twice():
    paths = [b"a", b"b/", b"b\xff", b"c"]
    assert shown([*paths[:3], *paths[1:]], ["**"], []) == ["a", "b/", "b\\xff", "c"]


def test_all_are_noted_and_may_have_keys():
    noted: list[Failure] = []
    unlisted = Unlisted(["**"], [], noted.append)
    for path in (b"_larder/copy/", b"a/", b"b"):
        unlisted(path, ObjectError("object.unreadable", "no", where="x"))
    assert noted == unlisted.failures.shown
    assert [(failure.key, failure.attempts) for failure in noted] == [("a/", 0), ("b", 0)]
    keys = pa.array(["a", "a/", "a/1", "ab", "b", "b/1", "bc"])
    assert unlisted.may_have(keys).tolist() == [False, True, True, False, True, True, False]
    assert unlisted.may_have(keys[:0]).tolist() == []
