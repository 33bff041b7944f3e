"""A repair makes again exactly what is damaged, to the same bytes, or says why it cannot."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_lab import Lab
from verify_lab import (
    DAMAGES,
    damaged,
    findings,
    grown_lab,
    listed_files,
    published,
    sibling_of,
    verified,
)

from larder.store.base import Store

LOST = ("emptied", "removed", "replaced by a sibling")
"""Damages that leave nothing of a file."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return grown_lab(tmp_path_factory.mktemp("grown"))


@pytest.fixture(scope="module")
def root(lab: Lab) -> Any:
    with lab.opened_root() as store:
        yield store


def may_be_refused(key: str, damage: str) -> bool:
    """What no other file says: the version that a tag names, and what a version consists of."""
    if key.startswith("tags/") or key.endswith(("/version.json", "/segment.json")):
        return damage in LOST
    return False


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_file_is_made_again_to_the_same_bytes(lab: Lab, root: Store, damage: str) -> None:
    files = published(root)
    version = verified(lab)["version"]
    for key in listed_files(root, version):
        wrong = DAMAGES[damage](files[key], files[sibling_of(key, files)])
        with damaged(root, key, wrong):
            planned = verified(lab, repair=True, plan_only=True)
            assert findings(planned)[key]["repair"], f"{damage} of {key}"
            left = published(root)
            assert left.get(key) == wrong, f"{damage} of {key}: a plan wrote"
            document = verified(lab, repair=True)
            repair = findings(document)[key]["repair"]
            assert repair["done"] == findings(planned)[key]["repair"]["done"]
            if may_be_refused(key, damage) and not repair["done"]:
                assert "restore it" in repair["message"]
                assert published(root).get(key) == wrong
                continue
            assert repair["done"], f"{damage} of {key}: {repair['message']}"
            assert document["status"] == "repaired"
            assert published(root) == files, f"{damage} of {key}"
    assert verified(lab)["status"] == "intact"
