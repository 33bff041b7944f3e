"""A verification finds and names every kind of damage to every file of a version."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_lab import Lab
from verify_lab import DAMAGES, damaged, findings, grown_lab, listed_files, published, sibling_of
from verify_lab import verified as verify

from larder.store.base import Store


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return grown_lab(tmp_path_factory.mktemp("grown"))


@pytest.fixture(scope="module")
def root(lab: Lab) -> Any:
    with lab.opened_root() as store:
        yield store


@pytest.fixture(scope="module")
def version(lab: Lab) -> str:
    return str(verify(lab)["version"])


def test_nothing_is_wrong_with_what_was_prepared(lab: Lab) -> None:
    document = verify(lab)
    assert (document["status"], document["found"]) == ("intact", 0)
    assert document["read"]["count"] == document["read"]["of"]["count"] > 10
    assert document["read"]["bytes"] == document["read"]["of"]["bytes"]
    assert document["samples"] == 24 - 4 + 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_every_damage_to_every_file_is_found(
    lab: Lab, root: Store, version: str, damage: str
) -> None:
    files = published(root)
    names = listed_files(root, version)
    assert {name.rpartition(".")[2] for name in names} == {"json", "parquet", "mdb", "tar", "idx"}
    for key in names:
        wrong = DAMAGES[damage](files[key], files[sibling_of(key, files)])
        assert wrong != files[key]
        with damaged(root, key, wrong):
            found = findings(verify(lab))
            assert key in found, f"{damage} of {key}: {sorted(found)}"
            assert found[key]["code"].startswith("damage.")
            own = {path for path, row in found.items() if row["role"] != "content"}
            assert own == {key}, f"{damage} of {key}: {sorted(own)}"
    assert verify(lab)["status"] == "intact"
