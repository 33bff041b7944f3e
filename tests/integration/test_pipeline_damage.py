"""Damaged files are found and named, and can be deleted and made again."""

from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import DOCUMENT, Lab, directory_lab, flip, images, png, write
from required import at_night

from larder.errors import DamageError, FatalError
from tests.support.runs import between
from tests.support.stores import LosingStore

FIELDS: dict[str, Any] = {
    "cluster": {"runner": {"workers": 1, "batch_bytes": 12_000}},
    "mirror": True,
}
CHANGED = images() | {"a/00.png": png(91)}


def damage(lab: Lab) -> DamageError | None:
    try:
        lab.prepare()
    except DamageError as error:
        return error
    return None


def carried_out(lab: Lab, most: int) -> DOCUMENT:
    """The run, after doing as the errors say."""
    for _ in range(most):
        error = damage(lab)
        if error is None:
            break
        assert error.exit_status == 4
        if "delete it" in error.hint:
            Path(error.where.removeprefix("file://")).unlink()
        lab.do_as_it_says(error)
    return lab.prepare()


@pytest.fixture(scope="module")
def digests(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Of first builds, before and after the change."""
    folders = [tmp_path_factory.mktemp("fresh") for _ in range(2)]
    labs = [directory_lab(folders[0], **FIELDS), directory_lab(folders[1], CHANGED, **FIELDS)]
    return [lab.prepare()["digest"] for lab in labs]


@pytest.mark.push
@pytest.mark.parametrize(
    ("lost", "kept_bytes"),
    [
        ("segments/*/shards/*.tar", 10),
        ("segments/*/index/rows-*", None),
        ("segments/*/caches/*.mdb", 10),
        ("versions/*/manifests/objects-*", None),
        ("versions/*/classes.json", 10),
        ("versions/*/version.json", None),
        ("segments/*/segment.json", None),
        ("tags/latest.json", None),
    ],
)
def test_no_version_names_a_file_that_the_store_acknowledged_and_did_not_keep(
    tmp_path, lost, kept_bytes
):
    lab = directory_lab(tmp_path, cache={"records": "encoded"} if "caches" in lost else None)
    losing = partial(LosingStore, is_lost=partial(fnmatch, pat=lost), kept_bytes=kept_bytes)
    with between(losing), pytest.raises(FatalError) as caught:
        lab.prepare()
    assert caught.value.code == "store.refused"
    assert fnmatch(caught.value.where, f"*/{lost}")
    assert not lab.files("latest.json" if "tags" in lost else "version.json")
    lab.prepare()
    lab.check()


@pytest.mark.push
@pytest.mark.parametrize("lost", ["version.json", "segment.json", "latest.json"])
def test_a_document_whose_last_byte_the_store_did_not_keep_ends_the_run(tmp_path, lost):
    lab = directory_lab(tmp_path)
    losing = partial(LosingStore, is_lost=partial(fnmatch, pat=f"*/{lost}"), kept_bytes=-1)
    with between(losing), pytest.raises(FatalError) as caught:
        lab.prepare()
    assert caught.value.code == "damage.digest"
    carried_out(lab, 2)
    lab.check()


@pytest.mark.push
@pytest.mark.parametrize(
    "damaged",
    ["version.json", "segment.json", "latest.json", "objects-*", "mirror/manifest-*.parquet"],
)
@pytest.mark.parametrize("changed", [False, *at_night(True)])
def test_a_damaged_file_of_a_version_is_found_or_made_again(tmp_path, digests, damaged, changed):
    fields = {**FIELDS, "growth": {"mode": "rebuild"}}  # so that the digest is of the inputs alone
    lab = directory_lab(tmp_path, **fields)
    lab.prepare()
    found = Path(str(lab.storage), "larder/d").rglob(damaged)
    (path,) = [path for path in found if not {"segments", "work"} <= {*path.parts}]
    flip(path)
    if changed:
        write(lab.source, {"a/00.png": png(91)})
    assert carried_out(lab, 2)["digest"] == digests[changed]
    assert lab.prepare()["status"] == "reused"
