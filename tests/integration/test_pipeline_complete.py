"""A run whose version exists already checks that it is complete, by listing it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, listing, write

from larder.errors import DamageError
from larder.pipeline.inline import prepare
from larder.store.base import Store
from larder.testing.recording import RecordingStore
from larder.testing.runs import between

FIELDS: dict[str, Any] = {"splits": {"train": ["a/**", "b/**"], "validation": "c/**"}}


def gone(path: Path) -> None:
    path.unlink()


def cut_short(path: Path) -> None:
    with path.open("rb+") as file:
        file.truncate(path.stat().st_size - 1)


def longer(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"\0")


def damage(lab: Lab, **more: Any) -> DamageError:
    with pytest.raises(DamageError) as caught:
        lab.prepare(**more)
    return caught.value


def do_as_it_says(lab: Lab, error: DamageError) -> None:
    root = Path(lab.root.removeprefix("file://"))
    documents = re.findall(r"(?:segments|versions)/[\w/]+\.json", error.hint)
    assert [name.rpartition("/")[2] for name in documents] == [
        "segment.json",
        "cache.json",
        "version.json",
    ]
    assert f"below {lab.root}" in error.hint
    for name in documents:
        (root / name).unlink(missing_ok=True)


@pytest.mark.parametrize("alter", [gone, cut_short, longer])
@pytest.mark.parametrize(
    "part",
    [
        "shards/train/d-train-000001.tar",
        "caches/*/validation-*.mdb",
        "index/samples-*",
        "index/shards-*",
        "manifests/objects-*",
    ],
)
def test_missing_or_truncated_files_are_named_and_the_hint_works(
    tmp_path: Path, part: str, alter: Callable[[Path], None]
) -> None:
    lab = directory_lab(tmp_path, **FIELDS)
    first = lab.prepare()
    before = listing(str(lab.storage))
    (path,) = Path(str(lab.storage)).rglob(part)
    alter(path)
    error = damage(lab)
    assert (error.code, error.exit_status) == ("damage.size", 4)
    assert error.where == f"file://{path}"
    assert "of this version" not in error.message
    do_as_it_says(lab, error)
    again = lab.prepare()
    assert again["digest"] == first["digest"]
    assert again["copied"]["count"] == 0
    lab.check()
    assert lab.prepare()["status"] == "reused"
    published = {key for key in listing(str(lab.storage)) if "/work/" not in key}
    assert published == {key for key in before if "/work/" not in key}


def test_the_document_of_the_segment_is_looked_for_too(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, **FIELDS)
    first = lab.prepare()
    (path,) = Path(str(lab.storage)).rglob("segment.json")
    path.unlink()
    error = damage(lab)
    assert error.where == f"file://{path}"
    do_as_it_says(lab, error)
    assert lab.prepare()["digest"] == first["digest"]
    lab.check()


def test_the_first_is_named_and_the_others_are_counted(tmp_path: Path) -> None:
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare()
    for path in Path(str(lab.storage)).rglob("*.tar"):
        path.unlink()
    error = damage(lab)
    assert error.where.endswith("shards/train/d-train-000000.tar")
    assert error.message == "the file is missing; 5 more files of this version, too"


def test_other_inputs_of_the_same_version_do_not_reuse_a_damaged_one(tmp_path: Path) -> None:
    """An object came that makes no sample: the version is found by its content."""
    lab = directory_lab(tmp_path, on_bad_key="skip", **FIELDS)
    lab.prepare()
    write(lab.source, {"README": b"words"})
    (path,) = Path(str(lab.storage)).rglob("d-train-000001.tar")
    path.unlink()
    assert damage(lab).where == f"file://{path}"
    with pytest.raises(DamageError):
        prepare(lab.settings())


def test_it_costs_a_few_listings_whatever_the_number_of_shards(tmp_path: Path) -> None:
    for name, shard_bytes in (("few", 100_000), ("many", 1)):
        lab = Lab(
            f"memory://whole-{name}-source",
            f"s3://memory-whole-{name}",
            tmp_path / name,
            {**FIELDS, "labels": {"from": "folder"}, "shards": {"bytes": shard_bytes}, "cache": {}},
        )
        write(str(lab.source), images())
        stores: list[RecordingStore] = []

        def recorded(store: Store, stores: list[RecordingStore] = stores) -> Store:
            stores.append(RecordingStore(store))
            return stores[-1]

        with between():
            first = lab.prepare()
        with between(recorded):
            assert lab.prepare()["status"] == "reused"
        calls = [
            (call.method, call.key)
            for store in stores
            for call in store.calls
            if not store.url.endswith("-source/")
        ]
        version = first["version"]
        lists = [key for method, key in calls if method == "list"]
        (segment,) = {key.split("/")[1] for key in lists if key.startswith("segments/")}
        assert [re.sub(r"caches/[0-9a-f]{32}", "caches/ID", key) for key in sorted(lists)] == [
            *(f"segments/{segment}/{part}/" for part in ("caches/ID", "index", "shards")),
            f"versions/{version}/",
        ], "no unfinished work: of it there may be more than of all else"
        read = [re.sub(r"[0-9a-f]{16,}", "ID", key) for method, key in calls if method != "list"]
        assert sorted(set(read)) == [
            "segments/ID/index/shards-ID.parquet",
            "segments/ID/segment.json",
            "tags/latest.json",
            "versions/ID/version.json",
        ]
        assert len(read) <= 6
