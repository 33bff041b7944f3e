"""A lost version.json, and a lost file of omitted rows, are found again and prove themselves."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab
from verify_lab import damaged, findings, grown_lab, published, verified

from larder.store.base import Store
from larder.versions import omitted

KINDS: dict[str, dict[str, Any]] = {
    "omitted rows": {},
    "packed again": {"growth": {"removals": "repack"}},
    "neither cache nor labels": {"cache": None, "labels": None},
    "splits by class": {
        "splits": {
            "by": "hash",
            "seed": 7,
            "fractions": {"train": 0.5, "validation": 0.5},
            "stratify": True,
        }
    },
}


def without_source(lab: Lab) -> None:
    """Leave nothing of the source but an object that is not of the dataset as it was."""
    source = Path(str(lab.source))
    source.rename(source.with_name("gone"))
    source.joinpath("a").mkdir(parents=True)
    source.joinpath("a/new.txt").write_bytes(b"new")


@pytest.mark.parametrize("kind", KINDS)
def test_version_json_is_written_again_without_the_source(tmp_path: Path, kind: str) -> None:
    lab = grown_lab(tmp_path, **KINDS[kind])
    without_source(lab)
    with lab.opened_root() as root:
        files = published(root)
        documents = [key for key in files if key.endswith("version.json")]
        assert len(documents) == 2
        for key, wrong in zip(documents, (b"x" * 999, None), strict=True):
            version = key.split("/")[1]
            with damaged(root, key, wrong):
                planned = verified(lab, version=version, repair=True, plan_only=True)
                assert findings(planned)[key]["repair"]["done"]
                document = verified(lab, version=version, repair=True)
                assert document["status"] == "repaired", document["findings"]
                message = findings(document)[key]["repair"]["message"]
                assert message == "written again: its segments lead to its ID"
                assert published(root) == files


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Two versions, whose source is gone."""
    made = grown_lab(tmp_path_factory.mktemp("gone"))
    without_source(made)
    return made


@pytest.fixture(scope="module")
def root(lab: Lab) -> Iterator[Store]:
    with lab.opened_root() as store:
        yield store


LOST = {
    "tags/latest.json": "of its inputs digest the tags know none",
    "/manifests/objects-": "there are 0 inventories of it",
    "classes.json": "lead to its ID",
    "cache.json": "cache.json is damaged or missing, too",
    "segment.json": "lead to its ID",
    "/index/samples-": "",
    "/index/shards-": "",
}


@pytest.mark.parametrize("also", LOST)
def test_what_else_is_lost_is_said(lab: Lab, root: Store, also: str) -> None:
    version = verified(lab)["version"]
    document = f"versions/{version}/version.json"
    own = set(findings(verified(lab, version=version)))
    assert not own
    segments = [key.split("/")[1] for key in published(root) if key.endswith("segment.json")]
    key = next(
        key
        for key in published(root)
        if also in key and (version in key or key.startswith(("segments/", "tags/")))
    )
    assert key.split("/")[1] in (version, *segments, "latest.json")
    with damaged(root, key, None), damaged(root, document, b"x"):
        repair = findings(verified(lab, version=version, repair=True))[document]["repair"]
        assert not repair["done"]
        assert LOST[also] in repair["message"]
        assert "restore it" in repair["message"]
        assert bytes(root.get(document)) == b"x"


@pytest.mark.parametrize(
    "fields",
    [{"on_bad_key": "skip"}, {"splits": {"train": "**"}}, {"cache": None}, {"labels": None}],
)
def test_another_dataset_file_leads_to_no_version(
    lab: Lab, root: Store, fields: dict[str, Any]
) -> None:
    version = verified(lab)["version"]
    document = f"versions/{version}/version.json"
    other = Lab(lab.source, lab.storage, lab.output, {**lab.fields, **fields})
    with damaged(root, document, b"x"):
        repair = findings(verified(other, version=version, repair=True))[document]["repair"]
        assert not repair["done"]
        assert bytes(root.get(document)) == b"x"


def test_the_source_is_asked_if_the_tag_is_lost_too(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, cache=None)
    lab.prepare()
    with lab.opened_root() as root:
        files = published(root)
        lost = [key for key in files if key.endswith(("version.json", "latest.json"))]
        for key in lost:
            root.delete(key)
        planned = findings(verified(lab, repair=True, plan_only=True))[lost[-1]]["repair"]
        assert planned == {"done": True, "message": "published again: the source still leads to it"}
        document = verified(lab, repair=True)
        assert document["status"] == "repaired", document["findings"]
        assert published(root) == files


def test_a_file_of_omitted_rows_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(omitted, "MAX_INLINE_RANGES", 0)
    lab = grown_lab(tmp_path)
    without_source(lab)
    with lab.opened_root() as root:
        files = published(root)
        (key,) = (key for key in files if key.endswith(".npy"))
        version = f"versions/{key.split('/')[1]}/version.json"
        with damaged(root, key, b"x" * len(files[key])):
            document = verified(lab, repair=True)
            assert document["status"] == "repaired", document["findings"]
            message = findings(document)[key]["repair"]["message"]
            assert message == "made again from the segments and the inventory"
            assert published(root) == files
        with damaged(root, key, None), damaged(root, version, None):
            assert verified(lab, repair=True)["status"] == "repaired"
            assert published(root) == files
        inventory = next(
            name for name in files if "/objects-" in name and name.startswith(version[:40])
        )
        with damaged(root, key, b"x"), damaged(root, inventory, None):
            found = findings(verified(lab, repair=True))
            assert not found[key]["repair"]["done"]
            assert "restore it" in found[key]["repair"]["message"]
