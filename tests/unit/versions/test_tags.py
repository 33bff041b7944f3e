"""Tags move by compare-and-swap, from the version that they named before the listing."""

from contextlib import nullcontext
from functools import partial

import pytest

from larder.errors import ConfigError, SupersededError
from larder.store.base import Store
from larder.versions import layout
from larder.versions.tags import (
    HISTORY,
    Tag,
    TagEntry,
    find_version,
    move_tag,
    published_ids,
    read_tag,
)
from tests.support.errors import larder_error
from tests.support.stores import Meanwhile, MeanwhileStore, RecordingStore


def hexed(text: str, digits: int = 32) -> str:
    return text.encode().hex().rjust(digits, "0")


def an_entry(version: str, inputs: str) -> TagEntry:
    return TagEntry(hexed(version), hexed(inputs, 64))


def a_tag(version: str, inputs: str, history: tuple[TagEntry, ...] = ()) -> Tag:
    return Tag(hexed(version), hexed(inputs, 64), history)


def moved(store: Store, tag: str, version: str, inputs: str, expected: str | None) -> bool:
    before = None if expected is None else hexed(expected)
    return move_tag(store, tag, hexed(version), hexed(inputs, 64), before)


def test_a_tag_moves_from_the_version_that_was_expected_and_keeps_its_history(root):
    assert read_tag(root, "latest") is None
    assert moved(root, "latest", "a", "1", None)
    assert moved(root, "latest", "b", "2", "a")
    assert moved(root, "latest", "a", "3", "b")
    history = (an_entry("a", "1"), an_entry("b", "2"))
    tag = read_tag(root, "latest")
    assert tag == a_tag("a", "3", history)
    assert tuple(tag.versions()) == (hexed("a"), hexed("b"))


@pytest.mark.parametrize("expected", [None, "a", "c"])
def test_a_tag_that_names_another_version_is_not_moved(root, expected):
    moved(root, "latest", "b", "2", None)
    with pytest.raises(SupersededError) as caught:
        moved(root, "latest", "d", "4", expected)
    assert (caught.value.code, caught.value.exit_status) == ("version.superseded", 1)
    assert read_tag(root, "latest") == a_tag("b", "2")


def test_a_tag_that_was_deleted_is_not_made_again(root):
    with pytest.raises(SupersededError):
        moved(root, "latest", "b", "2", "a")
    assert read_tag(root, "latest") is None


@pytest.mark.parametrize("expected", [None, "a", "b", "c"])
def test_a_tag_that_names_the_version_already_counts_as_moved(root, expected):
    moved(root, "latest", "a", "1", None)
    moved(root, "latest", "b", "2", "a")
    recorder = RecordingStore(root)
    assert not moved(recorder, "latest", "b", "2", expected)
    assert recorder.writes == ()
    assert moved(recorder, "latest", "b", "3", expected)
    assert read_tag(root, "latest") == a_tag("b", "3", (an_entry("a", "1"),))


def test_the_history_is_bounded_and_keeps_the_newest(root):
    expected = None
    for number in range(HISTORY + 3):
        moved(root, "latest", f"v{number}", str(number), expected)
        expected = f"v{number}"
    tag = read_tag(root, "latest")
    assert len(tag.history) == HISTORY
    assert tag.history[-1] == an_entry(f"v{HISTORY + 1}", str(HISTORY + 1))
    assert next(tag.versions()) == tag.version == hexed(f"v{HISTORY + 2}")


@pytest.mark.parametrize("before", [None, "a"])
@pytest.mark.parametrize("other", ["other", "b"])
def test_a_tag_that_another_run_moves_between_its_reading_and_its_writing(root, before, other):
    """To the same version, it counts as moved."""
    if before:
        moved(root, "latest", before, "1", None)
    meanwhile = Meanwhile()
    act = partial(moved, root, "latest", other, "3", before)
    meanwhile.before("put", "tags/latest.json", act)
    with nullcontext() if other == "b" else larder_error("version.superseded"):
        moved(MeanwhileStore(root, meanwhile), "latest", "b", "3", before)
    history = (an_entry("a", "1"),) if before else ()
    assert read_tag(root, "latest") == a_tag(other, "3", history)


IDS = ["3fa9" + "0" * 28, "3fa9" + "1" * 28, "b" * 32]


@pytest.fixture
def published(root):
    for version in IDS:
        root.put(layout.version_key(version), b"")
        root.put(f"{layout.version_prefix(version)}card/card.html", b"")
    root.put("versions/" + "c" * 32 + "/manifests/objects.parquet", b"of a run that was stopped")
    root.put("versions.txt", b"of somebody else")
    move_tag(root, "20240101", IDS[2], "0" * 64, None)
    return root


def test_versions_have_short_names(published):
    for name, version in [("bbbb", IDS[2]), ("3fa90", IDS[0]), (IDS[1], IDS[1])]:
        assert find_version(published, "d", name) == version
    assert find_version(published, "d", "20240101") == IDS[2], "a tag comes first"
    assert list(published_ids(published)) == IDS


@pytest.mark.parametrize(
    ("name", "code", "named"),
    [
        ("3fa9", "version.ambiguous", IDS[1]),
        ("bbb", "version.missing", "bbbbbbbb"),
        ("20240102", "version.missing", "20240101"),
        ("cccc", "version.missing", "20240101"),
        ("../x", "version.missing", "20240101"),
    ],
)
def test_what_names_no_version_is_refused_with_the_nearest(published, name, code, named):
    with pytest.raises(ConfigError) as caught:
        find_version(published, "d", name)
    assert (caught.value.code, named in str(caught.value)) == (code, True)
