"""Tests of larder.copy.mirror_choice: the table, row by row."""

from __future__ import annotations

import pytest

from larder.copy.mirror_choice import choose_mirror
from larder.copy.site import Site

EAST, WEST = Site("aws", "us-east-1", bucket="a"), Site("aws", "us-west-2", bucket="b")
NOWHERE = Site("aws", bucket="c")
DIRECTORY = Site("file")


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("source", [EAST, WEST, NOWHERE, DIRECTORY])
@pytest.mark.parametrize("setting", [True, False])
def test_a_setting_is_obeyed(setting: bool, source: Site, again: bool) -> None:
    choice = choose_mirror(setting, source, WEST, read_again=again)
    assert choice.wanted is setting
    assert choice.reason == f"mirror is {'true' if setting else 'false'}"


@pytest.mark.parametrize(
    ("source", "storage", "again", "wanted", "reason"),
    [
        (DIRECTORY, DIRECTORY, True, False, "the source is beside the storage"),
        (DIRECTORY, WEST, True, False, "the source is on this machine"),
        (WEST, WEST, True, False, "the source is beside the storage"),
        (NOWHERE, WEST, True, False, "regions of the source and of the storage are not both"),
        (EAST, WEST, False, False, "every object is read only once"),
        (EAST, WEST, True, True, "the source is at AWS us-east-1 and the storage at AWS us-west-2"),
        (EAST, DIRECTORY, True, True, "at AWS us-east-1 and the storage on this machine"),
        (EAST, Site("gcp", "us-central1"), True, True, "the storage at Google Cloud us-central1"),
        (Site("server", server="a:1"), Site("server", server="b:1"), True, True, "at a:1 and"),
    ],
)
def test_auto(source: Site, storage: Site, again: bool, wanted: bool, reason: str) -> None:
    choice = choose_mirror("auto", source, storage, read_again=again)
    assert choice.wanted is wanted
    assert reason in choice.reason
