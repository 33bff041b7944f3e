"""A version by its ID, the beginning of its ID, or a tag."""

import pytest

from larder.errors import ConfigError
from larder.versions import layout
from larder.versions.tags import find_version, move_tag, published_ids

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
