"""What repairs find in odd places: nothing is written over or deleted that may be needed."""

from __future__ import annotations

from typing import Any

import pytest
from pipeline_lab import write
from verify_lab import (
    everything,
    findings,
    flipped,
    forget_replaced,
    published,
    shards,
    text_lab,
    verified,
)

from larder.manifest.digest import sha256_hex
from larder.manifest.sealed import StoredFile
from larder.store.base import Store
from larder.store.delegate import DelegatingStore
from larder.verify.repair import repair_large
from larder.verify.replacing import Spares

pytestmark = pytest.mark.push


def exchange(root: Store, one: str, other: str) -> None:
    """Put each of two files in the place of the other."""
    data = bytes(root.get(one))
    root.put(one, bytes(root.get(other)))
    root.put(other, data)


def test_what_is_replaced_is_never_deleted(tmp_path):
    """It may be an object of the mirror, a tag, or a file of a segment that is being built."""
    lab = text_lab(tmp_path, mirror=True)
    write(str(lab.source), {"b/new.txt": b"new"})
    version = lab.prepare()["version"]
    with lab.opened_root() as root:
        one, other, *_ = shards(root)
        inventory = next(key for key in published(root) if "/manifests/objects-" in key)
        exchange(root, one, "mirror/a/00.txt")
        exchange(root, inventory, "tags/latest.json")
        root.put(other, b"gone")
        contents = set(everything(root).values())
        assert verified(lab, version=version, repair=True)["status"] == "repaired"
        assert contents <= set(everything(root).values())
        assert verified(lab, version=version)["status"] == "intact"


def test_what_changes_during_a_repair_is_kept(text, root, monkeypatch):
    """A repair writes nothing but what was published, whatever others do meanwhile."""
    one, *_ = shards(root)
    files, made = published(root), repair_large
    root.put(one, flipped(files[one]))

    def late(*arguments: Any, **named: Any) -> Any:
        root.put(one, b"of another run")
        return made(*arguments, **named)

    monkeypatch.setattr("larder.verify.repair.repair_large", late)
    assert findings(verified(text, repair=True))[one]["repair"]["done"]
    assert published(root) == files
    assert forget_replaced(root) == [b"of another run"]


def test_two_repairs_at_once_do_no_harm(text, root, monkeypatch):
    """What the other one has repaired meanwhile is not made again."""
    one, other, *_ = shards(root)
    files, made = published(root), repair_large
    exchange(root, one, other)
    statuses = []

    def during(*arguments: Any, **named: Any) -> Any:
        monkeypatch.setattr("larder.verify.repair.repair_large", made)
        statuses.append(verified(text, repair=True)["status"])
        return made(*arguments, **named)

    monkeypatch.setattr("larder.verify.repair.repair_large", during)
    document = verified(text, repair=True)
    assert [*statuses, document["status"]] == ["repaired", "repaired"]
    assert findings(document)[one]["repair"]["message"] == "it is as it was published"
    assert published(root) == files


def test_a_copy_of_what_changes_meanwhile_is_not_published(text, root):
    one, other, *_ = shards(root)
    before, data = bytes(root.get(one)), bytes(root.get(other))
    wanted = StoredFile(one, len(data), sha256_hex(data), "shard")
    changed = iter([bytes(root.get(other)), b"x"])

    class Changing(DelegatingStore):
        def open(self, key: str, **options: Any) -> Any:
            if key == other:
                root.put(other, next(changed))
            return super().open(key, **options)

    assert Spares(Changing(root), {wanted.bytes}).fill(wanted) == ""
    assert bytes(root.get(one)) == before


def test_nothing_is_kept_through_a_link_that_leads_out(text, root, tmp_path):
    key, outside = shards(root)[0], tmp_path / "outside"
    root.put(key, b"gone")
    outside.mkdir()
    (text.folder / "work").mkdir(exist_ok=True)
    (text.folder / "work/replaced").symlink_to(outside)
    repair = findings(verified(text, repair=True))[key]["repair"]
    assert not repair["done"]
    assert bytes(root.get(key)) == b"gone"
    assert not any(outside.iterdir())


def test_stray_files_end_no_repair(text, root):
    segment = shards(root)[0].split("/")[1]
    stray = f"segments/{segment}/caches"
    for key in (stray, "work/replaced/.DS_Store"):
        root.put(key, b"?")
    root.put(shards(root)[0], b"gone")
    document = verified(text, repair=True)
    assert [path for path, row in findings(document).items() if not row["repair"]] == [stray]
    assert document["status"] == "damaged"


def test_a_lost_latest_is_found_whatever_tag_is_asked_for(text, root):
    root.put("tags/stable.json", bytes(root.get("tags/latest.json")))
    root.delete("tags/latest.json")
    for repair in (False, True):
        document = verified(text, version="stable", repair=repair)
        assert document["status"] == "damaged"
        assert "tags/latest.json" in findings(document)
