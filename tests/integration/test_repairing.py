"""A repair makes again exactly what is damaged, to the same bytes, or says why it cannot."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, png
from verify_lab import (
    DAMAGES,
    SPLITS,
    damaged,
    findings,
    grown_lab,
    listed_files,
    published,
    sibling_of,
    verified,
)

from larder.pipeline import repairing_caches
from larder.shards import tar
from larder.shards.formats.webdataset import WebDataset
from larder.store.base import Store
from larder.versions.publish import read_cache

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
    """What no other file says: which version a tag names."""
    return key.startswith("tags/") and damage in LOST


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.exhaustive(after=2)
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


def text_lab(folder: Path, **fields: Any) -> Lab:
    """Text samples in a few shards, without a cache."""
    objects = {f"{'ab'[n % 2]}/{n:02}.txt": b"%d" % n * (300 + n) for n in range(12)}
    defaults: dict[str, Any] = {"cache": None, "validate": "none", "shards": {"bytes": 6_000}}
    lab = directory_lab(folder, objects, **{**defaults, **fields})
    lab.prepare()
    return lab


def shards(root: Store) -> list[str]:
    return [key for key in published(root) if key.endswith(".tar")]


def flipped(data: bytes) -> bytes:
    """A bit of the content of the shard's first sample."""
    return data[:1600] + bytes([data[1600] ^ 1]) + data[1601:]


def test_a_changed_source_is_refused_with_what_helps(tmp_path: Path) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        key = shards(root)[0]
        before = bytes(root.get(key))
        root.put(key, flipped(before))
        (finding,) = verified(lab)["findings"]
        assert finding["samples"] == {"count": 1, "keys": ["a/00"]}
        changed = Path(str(lab.source), "a/00.txt")
        right = changed.read_bytes()
        for wrong, why in (
            (b"x" * len(right), "other bytes in the source"),
            (right + b"x", "other bytes in the source"),
            (right[:-1], "other bytes in the source"),
            (None, "not in the source"),
        ):
            changed.unlink()
            if wrong is not None:
                changed.write_bytes(wrong)
            else:
                changed.parent.joinpath("other.txt").write_bytes(b"")
            document = verified(lab, repair=True)
            assert document["status"] == "damaged"
            (finding,) = document["findings"]
            message = finding["repair"]["message"]
            assert "a/00.txt: its bytes are nowhere any more" in message
            assert why in message
            assert "put the object back into the source" in message
            assert bytes(root.get(key)) == flipped(before)
            changed.write_bytes(right)
        # Written again since, so that its etag is another one: the bytes decide.
        document = verified(lab, repair=True)
        assert document["status"] == "repaired"
        assert document["findings"][0]["repair"]["message"] == (
            "made again: 1 object from the source, 1 object from the shard itself"
        )
        assert bytes(root.get(key)) == before


def test_preparing_again_leaves_a_lost_sample_behind(tmp_path: Path) -> None:
    """What the refusal says: the next version takes what the source has now."""
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        key = shards(root)[0]
        root.put(key, flipped(bytes(root.get(key))))
    Path(str(lab.source), "a/00.txt").write_bytes(b"changed")
    assert verified(lab, repair=True)["status"] == "damaged"
    lab.prepare()
    assert verified(lab)["status"] == "intact"


def test_the_mirror_and_old_shards_are_read_when_the_source_is_gone(tmp_path: Path) -> None:
    lab = text_lab(tmp_path, mirror=True)
    with lab.opened_root() as root:
        files = published(root)
        (tmp_path / "source").rename(tmp_path / "gone")
        (tmp_path / "source").mkdir()
        for key in shards(root):
            root.delete(key)
        document = verified(lab, repair=True)
        assert document["status"] == "repaired", document["findings"]
        assert published(root) == files
        assert "from the mirror" in document["findings"][0]["repair"]["message"]


def test_samples_that_were_packed_again_are_found_in_other_segments(tmp_path: Path) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        first = verified(lab)["version"]
        before = set(shards(root))
        Path(str(lab.source), "a/00.txt").write_bytes(b"changed")
        lab.prepare()
        new = next(key for key in shards(root) if key not in before)
        data = bytes(root.get(new))
        root.delete(new)
        (tmp_path / "source").rename(tmp_path / "gone")
        (tmp_path / "source/a").mkdir(parents=True)
        (tmp_path / "source/a/00.txt").write_bytes(b"changed")
        document = verified(lab, repair=True)
        assert document["status"] == "repaired", document["findings"]
        assert "from shards of other segments" in document["findings"][0]["repair"]["message"]
        assert bytes(root.get(new)) == data
        assert verified(lab, version=first)["status"] == "intact"


def test_everything_at_once(tmp_path: Path) -> None:
    """All that is below a segment but its work: the receipts and the source have it all."""
    lab = directory_lab(tmp_path, splits=SPLITS)
    lab.prepare()
    with lab.opened_root() as root:
        files = published(root)
        listed = listed_files(root, verified(lab)["version"])
        kept = ("tags/", "versions/")
        for key in listed:
            if not key.startswith(kept):
                root.delete(key)
        document = verified(lab, repair=True)
        rows = [row for row in document["findings"] if row["repair"]]
        refused = [row for row in rows if not row["repair"]["done"]]
        assert not refused, refused
        assert document["status"] == "repaired", document["findings"]
        assert published(root) == files


def without_work(root: Store) -> None:
    """Delete receipts and plans."""
    for page in list(root.list()):
        for info in page:
            if "/work/" in info.key:
                root.delete(info.key)


def test_without_receipts_shards_are_listed_from_their_samples(tmp_path: Path) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        files = published(root)
        without_work(root)
        for roles in (["shards"], ["indexes"], ["shards", "indexes"]):
            for role in roles:
                root.delete(next(key for key in files if f"/index/{role}-" in key))
            planned = verified(lab, repair=True, plan_only=True)
            assert planned["repaired"] == len(roles)
            document = verified(lab, repair=True)
            assert document["status"] == "repaired", document["findings"]
            message = document["findings"][0]["repair"]["message"]
            assert message == "made again from the manifest of samples and the shards"
            assert published(root) == files


def test_the_manifest_of_samples_without_receipts_is_refused_with_what_helps(
    tmp_path: Path,
) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        files = published(root)
        without_work(root)
        key = next(key for key in files if "/index/samples-" in key)
        root.put(key, b"x")
        (finding,) = verified(lab, repair=True)["findings"]
        version = next(key for key in files if key.endswith("version.json"))
        message = finding["repair"]["message"]
        assert message.startswith("the receipts of its shards are gone; restore it, or delete it")
        assert version in message
        root.delete(key)
        root.delete(version)
        lab.prepare()
        assert published(root) == files


def test_a_receipt_that_is_damaged_is_named(tmp_path: Path) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        files = published(root)
        key = next(key for key in files if "/index/samples-" in key)
        work = [
            info.key for page in root.list("segments/") for info in page if "/work/" in info.key
        ]
        for receipt in (name for name in work if name not in files):
            with damaged(root, receipt, b"x"), damaged(root, key, b"x"):
                (finding,) = verified(lab, repair=True)["findings"]
                message = finding["repair"]["message"]
                assert finding["repair"]["done"] or "it cannot be made again: " in message
                assert not finding["repair"]["done"] or bytes(root.get(key)) == files[key]


def test_segment_json_without_its_plan_is_refused(tmp_path: Path) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        without_work(root)
        key = next(key for key in published(root) if key.endswith("segment.json"))
        with damaged(root, key, b"x"):
            document = verified(lab, repair=True)
            assert "have changed" in findings(document)[key]["repair"]["message"]
            assert bytes(root.get(key)) == b"x"


def test_a_kind_of_cache_that_would_differ_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = directory_lab(tmp_path, images("a", each=3), cache={"records": "decoded"})
    lab.prepare()
    with lab.opened_root() as root:
        key = next(key for key in published(root) if key.endswith(".mdb"))
        built = repairing_caches.build_samples

        def other(*arguments: Any, **named: Any) -> Any:
            facts = built(*arguments, **named)
            return replace(facts, sha256="0" * 64, digest=digests.pop())

        monkeypatch.setattr(repairing_caches, "build_samples", other)
        digest = read_cache_digest(root, key)
        digests = ["0" * 64, digest]
        with damaged(root, key, b"x"):
            for why in ("page size", "Pillow"):
                (finding,) = verified(lab, repair=True)["findings"]
                assert why in finding["repair"]["message"]
                assert bytes(root.get(key)) == b"x"


def read_cache_digest(root: Store, key: str) -> str:
    """The content digest of a cache file."""
    _, segment, _, cache, _ = key.split("/")
    document = read_cache(root, segment, cache)
    assert document is not None
    return next(file.digest for file in document.files.values() if file.path == key)


def test_a_writer_of_other_bytes_replaces_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        key = shards(root)[0]
        wrong = flipped(bytes(root.get(key)))
        monkeypatch.setattr(tar, "_TIME", b"\0" + b"00000000001\0")
        with damaged(root, key, wrong):
            (finding,) = verified(lab, repair=True)["findings"]
            assert "its bytes are not those that were published" in finding["repair"]["message"]
            assert bytes(root.get(key)) == wrong
        monkeypatch.undo()
        monkeypatch.setattr(WebDataset, "version", 2)
        with damaged(root, key, wrong):
            (finding,) = verified(lab, repair=True)["findings"]
            assert "written by version 1 of the format" in finding["repair"]["message"]


def test_images_that_were_transformed_are_made_from_their_originals(tmp_path: Path) -> None:
    lab = directory_lab(
        tmp_path,
        {f"{name}/{n}.png": png(n, 40, 30) for name in "ab" for n in range(6)},
        cache=None,
        validate="none",
        shards={"bytes": 9_000, "images": {"resize": 16, "format": "jpeg"}},
    )
    lab.prepare()
    with lab.opened_root() as root:
        files = published(root)
        shard = next(key for key in files if key.endswith("000000.tar"))
        with damaged(root, shard, b""):
            repair = findings(verified(lab, repair=True))[shard]["repair"]
            assert repair["done"], repair["message"]
            assert "from the source" in repair["message"]
            assert published(root) == files
