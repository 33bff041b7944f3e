"""What repairs find in odd places: nothing is written over or deleted that may be needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, write
from verify_lab import (
    aside,
    everything,
    findings,
    flipped,
    published,
    shards,
    text_lab,
    verified,
)

from larder.errors import FatalError
from larder.manifest.sealed import seal
from larder.store.base import Store
from larder.verify import run
from larder.verify.aside import Spares

pytestmark = pytest.mark.exhaustive


def exchange(root: Store, one: str, other: str) -> None:
    """Put each of two files in the place of the other."""
    data = bytes(root.get(one))
    root.put(one, bytes(root.get(other)))
    root.put(other, data)


def test_what_is_moved_aside_is_never_deleted(tmp_path: Path) -> None:
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


def test_what_was_put_in_a_free_place_is_not_written_over(
    text: Lab, root: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by another repair, which puts back what this one has moved aside."""
    one, other, *_ = shards(root)
    size_bytes, sha256 = len(bytes(root.get(one))), "0" * 64
    assert Spares(root, {size_bytes}).fill(other, size_bytes, sha256) == ""
    wrong, made = flipped(bytes(root.get(one))), run.repair_large
    root.put(one, wrong)

    def late(*arguments: Any, **named: Any) -> Any:
        root.put(one, b"of another run")
        return made(*arguments, **named)

    monkeypatch.setattr(run, "repair_large", late)
    repair = findings(verified(text, repair=True))[one]["repair"]
    assert "something was put in its place meanwhile" in repair["message"]
    assert bytes(root.get(one)) == b"of another run"
    assert [bytes(root.get(kept)) for kept in aside(root)] == [wrong]


def test_of_two_repairs_at_once_the_second_is_refused(
    text: Lab, root: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    root.put(shards(root)[0], b"gone")
    made, refused = run.repair_large, []

    def during(*arguments: Any, **named: Any) -> Any:
        with pytest.raises(FatalError, match="has begun, and not ended") as caught:
            verified(text, repair=True)
        refused.append(caught.value)
        return made(*arguments, **named)

    monkeypatch.setattr(run, "repair_large", during)
    assert verified(text, repair=True)["status"] == "repaired"
    (error,) = refused
    assert (error.code, error.where) == ("run.repairing", f"{text.root}work/repair.json")
    assert "if it was killed, delete" in error.hint
    assert "work/repair.json" not in everything(root)


@pytest.mark.parametrize("claim", [b"?", b"", seal({"run": "1", "host": "other", "process": 1})])
def test_a_claim_of_another_machine_is_removed_by_hand(
    text: Lab, root: Store, claim: bytes
) -> None:
    root.put("work/repair.json", claim)
    with pytest.raises(FatalError, match="has begun, and not ended"):
        verified(text, repair=True)
    assert verified(text)["status"] == "intact", "only repairs exclude each other"
    root.delete("work/repair.json")
    assert verified(text, repair=True)["status"] == "intact"


def test_what_cannot_be_put_back_does_not_end_a_repair(text: Lab, root: Store) -> None:
    one, other, *_ = shards(root)
    place, left = text.folder / one, f"work/repair/1234abcd/{one}"
    root.put(left, b"gone")
    place.unlink()
    place.mkdir()
    root.put(other, b"gone")
    rows = findings(verified(text, repair=True))
    assert rows[other]["repair"]["done"]
    assert left in aside(root)


def test_stray_files_end_no_repair(text: Lab, root: Store) -> None:
    segment = shards(root)[0].split("/")[1]
    stray = f"segments/{segment}/caches"
    for key in (stray, "work/repair/.DS_Store"):
        root.put(key, b"?")
    root.put(shards(root)[0], b"gone")
    document = verified(text, repair=True)
    assert [path for path, row in findings(document).items() if not row["repair"]] == [stray]
    assert document["status"] == "damaged"


def test_a_lost_latest_is_found_whatever_tag_is_asked_for(text: Lab, root: Store) -> None:
    root.put("tags/stable.json", bytes(root.get("tags/latest.json")))
    root.delete("tags/latest.json")
    for repair in (False, True):
        document = verified(text, version="stable", repair=repair)
        assert document["status"] == "damaged"
        assert "tags/latest.json" in findings(document)
