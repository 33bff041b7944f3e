"""A repair makes what is damaged again, to the same bytes, or says why not; nothing is lost."""

import errno
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pipeline_lab import Lab, directory_lab, images, png, write
from required import at_night
from verify_lab import (
    DAMAGES,
    DOCUMENTS,
    damaged,
    everything,
    findings,
    flipped,
    forget_replaced,
    grown_lab,
    listed_files,
    published,
    replaced,
    shards,
    sibling_of,
    text_lab,
    verified,
)

from larder.errors import ObjectError
from larder.segments import cache_step
from larder.shards.formats import tar
from larder.shards.formats.webdataset import TarWriter, WebDataset
from larder.store.base import Store
from larder.store.delegate import DelegatingStore
from larder.verify.repair import repair_large
from larder.versions import omitted
from larder.versions.publish import read_version
from tests.support.runs import between

pytestmark = pytest.mark.push


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """With a mirror, which keeps the samples that the source has no more."""
    return grown_lab(tmp_path_factory.mktemp("grown"), mirror=True)


def has_changed(key: str, root: Store) -> bool:
    """Whether a shard has the one sample that was changed since: its bytes are nowhere else."""
    data = bytes(root.get(key))
    return key.endswith(".tar") and b"c/00.png" in data and png(8) not in data


PUSHED = ("replaced by a sibling", "removed", "truncated by one")


@pytest.mark.parametrize("damage", at_night(*DAMAGES, but=PUSHED))
def test_every_damage_to_every_file_is_found_and_made_again_to_the_same_bytes(lab, damage):
    with lab.opened_root() as root:
        files = published(root)
        names = listed_files(root, verified(lab)["version"])
        suffixes = {name.rpartition(".")[2] for name in names}
        assert suffixes == {"json", "parquet", "npz", "mdb", "tar", "idx"}
        for key in names:
            lost = key.startswith("tags/") or key.endswith(DOCUMENTS) or has_changed(key, root)
            wrong = DAMAGES[damage](files[key], files[sibling_of(key, files)])
            with damaged(root, key, wrong):
                document = verified(lab, repair=True)
                found = findings(document)
                own = {path for path, row in found.items() if row["role"] != "content"}
                assert own == {key}, f"{damage} of {key}: {sorted(own)}"
                assert found[key]["code"].startswith("damage.")
                repair = found[key]["repair"]
                if lost:
                    assert not repair["done"]
                    assert "restore" in repair["message"]
                    assert published(root).get(key) == wrong
                    continue
                assert repair["done"], f"{damage} of {key}: {repair['message']}"
                assert document["status"] == "repaired"
                assert published(root) == files, f"{damage} of {key}"
                assert forget_replaced(root) == ([] if wrong is None else [wrong])
        assert verified(lab)["status"] == "intact"


def test_a_changed_source_is_refused_with_what_helps(text, root):
    key = shards(root)[0]
    before = bytes(root.get(key))
    root.put(key, flipped(before))
    (finding,) = verified(text)["findings"]
    assert finding["samples"] == {"count": 1, "keys": ["a/00"]}
    changed = Path(str(text.source), "a/00.txt")
    right = changed.read_bytes()
    for wrong in (b"x" * len(right), right + b"x", None):
        changed.unlink()
        if wrong is not None:
            changed.write_bytes(wrong)
        document = verified(text, repair=True)
        assert document["status"] == "damaged"
        repair = findings(document)[key]["repair"]
        assert not repair["done"]
        assert "prepare the dataset again" in repair["message"]
        assert bytes(root.get(key)) == flipped(before)
        changed.parent.mkdir(exist_ok=True)
        changed.write_bytes(right)
    # Written again since, so that its etag is another one: the bytes decide.
    document = verified(text, repair=True)
    assert document["status"] == "repaired", document["findings"]
    assert bytes(root.get(key)) == before
    assert forget_replaced(root) == [flipped(before)]


def test_preparing_again_leaves_a_lost_sample_behind(tmp_path):
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        key = shards(root)[0]
        root.put(key, flipped(bytes(root.get(key))))
    Path(str(lab.source), "a/00.txt").write_bytes(b"changed")
    assert verified(lab, repair=True)["status"] == "damaged"
    lab.prepare()
    assert verified(lab)["status"] == "intact"


@pytest.mark.parametrize("damage", ["removed", "truncated by one", "middle byte flipped"])
@pytest.mark.parametrize("changed", ["a/00.txt", "a/02.txt", "**/*.txt"])
def test_a_shard_whose_source_has_changed_is_replaced_as_the_refusal_says(
    changed, damage, tmp_path
):
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        key = shards(root)[0]
        data = DAMAGES[damage](bytes(root.get(key)), b"")
        root.delete(key) if data is None else root.put(key, data)
        for path in Path(str(lab.source)).glob(changed):
            path.write_bytes(b"changed")
        refused = findings(verified(lab, repair=True))[key]["repair"]
        assert not refused["done"]
        for document in re.findall(r"\S+\.json", refused["message"]):
            root.delete(document)
    lab.prepare()
    assert verified(lab)["status"] == "intact"


@pytest.mark.parametrize("name", ["-000000.tar", "segment.json", "version.json"])
def test_no_document_that_another_version_needs_is_to_be_deleted(name, tmp_path):
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        first = verified(lab)["version"]
        key = next(path for path in published(root) if path.endswith(name))
        write(Path(str(lab.source)), {"b/12.txt": b"new", "a/00.txt": b"changed"})
        lab.prepare()
        assert verified(lab)["version"] != first
        root.put(key, bytes(root.get(key))[:-9])
        refused = findings(verified(lab, repair=True, version=first))[key]["repair"]
        assert not refused["done"]
        assert "restore" in refused["message"]
        assert "delete" not in refused["message"]


def test_earlier_versions_stay_where_a_refusal_of_the_latest_is_followed(tmp_path):
    lab = text_lab(tmp_path)
    with lab.opened_root() as root:
        first, key = verified(lab)["version"], shards(root)[0]
        write(Path(str(lab.source)), {"b/12.txt": b"new"})
        lab.prepare()
        root.delete(key)
        Path(str(lab.source), "a/00.txt").write_bytes(b"changed")
        refused = findings(verified(lab, repair=True))[key]["repair"]
        assert re.findall(r"\S+\.json", refused["message"]) == ["tags/latest.json"]
        root.delete("tags/latest.json")
        lab.prepare()
        assert verified(lab)["status"] == "intact"
        assert set(findings(verified(lab, version=first))) == {key}


def test_samples_that_were_packed_again_are_read_from_the_source(text, root, tmp_path):
    before = set(shards(root))
    Path(str(text.source), "a/00.txt").write_bytes(b"changed")
    text.prepare()
    new = next(key for key in shards(root) if key not in before)
    data = bytes(root.get(new))
    root.delete(new)
    (tmp_path / "source").rename(tmp_path / "gone")
    repair = findings(verified(text, repair=True))[new]["repair"]
    assert not repair["done"]
    assert "put what it was made from back as it was" in repair["message"]
    (tmp_path / "gone").rename(tmp_path / "source")
    assert findings(verified(text, repair=True))[new]["repair"]["done"]
    assert bytes(root.get(new)) == data


@pytest.mark.parametrize(
    "shards_", [{"format": "recordio", "bytes": 2_000}, {"bytes": 2_000, "images": {"resize": 4}}]
)
def test_every_shard_is_made_again_without_the_samples_that_were_left_out(tmp_path, shards_):
    """Numbers of records count them; the sizes of transformed images are not those of objects."""
    objects = {f"a/{n:02}.png": b"no image" if n % 4 == 1 else png(n) for n in range(12)}
    lab = directory_lab(tmp_path, objects, shards=shards_, on_bad_sample="skip", cache=None)
    assert lab.prepare()["skipped"] == 3
    with lab.opened_root() as root:
        without_work(root)
        files = published(root)
        assert sum(key.endswith((".rec", ".tar")) for key in files) > 1
        for key in files:
            if "/shards/" in key:
                root.delete(key)
        assert verified(lab, repair=True)["status"] == "repaired"
        assert published(root) == files


def without_work(root: Store) -> None:
    for page in list(root.list()):
        for info in page:
            if "/work/" in info.key:
                root.delete(info.key)


def test_nothing_reads_work_once_the_segment_is_there(tmp_path):
    lab = directory_lab(tmp_path, images("ab", each=4))
    lab.prepare()
    with lab.opened_root() as root:
        without_work(root)
        files = published(root)
        assert verified(lab)["status"] == "intact"
        for key in [key for key in files if key.endswith((".tar", ".idx", ".mdb"))]:
            root.put(key, b"gone")
        document = verified(lab, repair=True)
        assert document["status"] == "repaired", document["findings"]
        assert published(root) == files
        without_work(root)
        for key in ("version.json", "latest.json", "cache.json"):
            root.delete(next(each for each in files if each.endswith(key)))
        document = lab.prepare()
        assert document["shards"]["reused"] == len(shards(root))
        assert published(root) == files


def test_a_shard_is_made_once_its_sources_are(text, root):
    files = published(root)
    key, shard = next(key for key in files if "/index/sources-" in key), shards(root)[0]
    root.put(key, files[key][:-1])
    root.put(shard, b"x")
    assert findings(verified(text))[key]["code"] == "damage.size"
    assert verified(text, repair=True)["status"] == "repaired"
    assert published(root) == files
    without_work(root)
    with damaged(root, key, b"x"), damaged(root, shard, b"x"):
        rows = findings(verified(text, repair=True))
        assert "without a receipt" in rows[key]["repair"]["message"]
        assert "have to be repaired first" in rows[shard]["repair"]["message"]
        assert bytes(root.get(shard)) == bytes(root.get(key)) == b"x"


@pytest.mark.parametrize("wrong", [None, b"x"])
def test_what_nothing_else_has_is_refused_and_made_by_doing_as_the_refusal_says(
    tmp_path, monkeypatch, wrong
):
    """To the same bytes, except the document of a segment that versions before have, too."""
    monkeypatch.setattr(omitted, "MAX_INLINE_RANGES", 0)
    lab = grown_lab(tmp_path)
    with lab.opened_root() as root:
        files = published(root)
        version = verified(lab)["version"]
        document = read_version(root, version)
        assert document is not None
        old, new = (use.id for use in document.segments)
        ends = "/version.json", "/omitted-", f"{new}/segment.json", "/cache.json"
        for end in (*ends, f"{old}/segment.json"):
            key = next(key for key in listed_files(root, version) if end in key)
            root.delete(key) if wrong is None else root.put(key, wrong)
            repair = findings(verified(lab, repair=True))[key]["repair"]
            assert not repair["done"]
            assert published(root).get(key) == wrong
            for named in re.findall(r"(?:segments|versions)/[\w/]+\.json", repair["message"]):
                root.delete(named)
            with between():
                lab.prepare()
            assert verified(lab)["status"] == "intact"
            if old not in end:
                files["tags/latest.json"] = bytes(root.get("tags/latest.json"))
                assert published(root) == files


def test_a_lost_tag_is_never_guessed(tmp_path):
    """Neither if its version is lost, nor if there is only one."""
    lab = grown_lab(tmp_path, cache=None)
    with lab.opened_root() as root:
        files = published(root)
        newest = verified(lab)["version"]
        (older,) = {key.split("/")[1] for key in files if key.startswith("versions/")} - {newest}
        for key in (f"versions/{newest}/version.json", "tags/latest.json"):
            root.delete(key)
        document = verified(lab, repair=True)
        assert document["status"] == "damaged"
        (finding,) = document["findings"]
        assert older in finding["message"]
        assert not finding["repair"]["done"]
        assert "tags/latest.json" not in published(root)
        for key in [key for key in files if key.startswith(f"versions/{newest}/")]:
            root.delete(key)
        assert verified(lab, repair=True)["status"] == "damaged"
        assert "tags/latest.json" not in published(root)
        assert verified(lab, version=older, repair=True)["status"] == "repaired"
        assert verified(lab)["version"] == older


def test_a_tag_is_not_set_to_a_damaged_version(text, root, tmp_path):
    version = verified(text)["version"]
    root.delete("tags/latest.json")
    root.put(shards(root)[0], b"gone")
    (tmp_path / "source").rename(tmp_path / "gone")
    assert verified(text, version=version, repair=True)["status"] == "damaged"
    assert "tags/latest.json" not in published(root)
    (tmp_path / "gone").rename(tmp_path / "source")
    assert verified(text, version=version, repair=True)["status"] == "repaired"
    assert verified(text)["status"] == "intact"


@pytest.mark.parametrize(
    ("kind", "with_kind"),
    [
        *((".tar", each) for each in ("/index/sources-", "/index/rows-", ".idx", "classes.json")),
        ("classes.json", "/index/rows-"),  # from which classes.json is made
    ],
)
def test_exchanged_files_are_made_again(text, root, kind, with_kind):
    files = published(root)
    one, other = (next(key for key in files if each in key) for each in (kind, with_kind))
    root.put(one, files[other])
    root.put(other, files[one])
    document = verified(text, repair=True)
    assert document["status"] == "repaired", document["findings"]
    assert published(root) == files


def test_what_another_version_needs_is_kept(text, root):
    old = verified(text)["version"]
    inventory = next(key for key in published(root) if "/manifests/objects-" in key)
    write(str(text.source), {"b/new.txt": b"new"})
    text.prepare()
    files = published(root)
    shard = shards(root)[0]
    root.put(shard, files[inventory])
    root.put(inventory, files[shard])
    assert verified(text, repair=True)["status"] == "repaired"
    document = verified(text)
    assert document["status"] == "intact"
    assert document["unused"]["keys"] == replaced(root)
    assert verified(text, version=old, repair=True)["status"] == "damaged"
    assert files[inventory] in forget_replaced(root)


@pytest.mark.parametrize(("records", "why"), [("0" * 64, "other records"), (None, "same records")])
def test_a_cache_that_would_differ_is_refused(tmp_path, monkeypatch, records, why):
    lab = directory_lab(tmp_path, images("a", each=3), cache={"records": "decoded"})
    lab.prepare()
    build, opened, digests = cache_step.build_samples, cache_step.open_file, list[str]()

    def other(*arguments: Any, **named: Any) -> Any:
        facts = build(*arguments, **named)
        digests.append(facts.digest)
        return facts._replace(sha256="0" * 64, digest=records or facts.digest)

    def opened_as_built(path: Path, facts: Any) -> Any:
        return opened(path, facts._replace(digest=digests[-1]))

    monkeypatch.setattr(cache_step, "build_samples", other)
    monkeypatch.setattr(cache_step, "open_file", opened_as_built)
    with lab.opened_root() as root:
        files = published(root)
        key = next(key for key in files if key.endswith(".mdb"))
        with damaged(root, key, b"x"):
            (finding,) = verified(lab, repair=True)["findings"]
            assert why in finding["repair"]["message"]
            assert published(root) == {**files, key: b"x"}


def test_what_is_made_with_other_bytes_does_not_stay(text, root, monkeypatch):
    key = shards(root)[0]
    wrong = flipped(bytes(root.get(key)))
    monkeypatch.setattr(tar, "_TIME", b"\0" + b"00000000001\0")
    monkeypatch.setattr(TarWriter, "least_together", None)
    with damaged(root, key, wrong):
        (finding,) = verified(text, repair=True)["findings"]
        assert "it has other bytes" in finding["repair"]["message"]
        assert bytes(root.get(key)) == wrong
    monkeypatch.undo()
    monkeypatch.setattr(WebDataset, "version", 2)
    with damaged(root, key, wrong):
        (finding,) = verified(text, repair=True)["findings"]
        assert "planned with webdataset version 1, here version 2" in finding["repair"]["message"]


SHAPES: dict[str, dict[str, Any]] = {
    "count_min": {"shards": {"bytes": 60_000, "count_min": 2}},
    "samples_per_shard": {"shards": {"samples_per_shard": 5, "format": "parquet"}},
    "shuffle_seed": {"shards": {"bytes": 6_000, "shuffle_seed": 7, "format": "records"}},
    "numbered records": {"shards": {"bytes": 6_000, "format": "recordio"}},
    "transformed images": {"shards": {"bytes": 6_000, "images": {"resize": 16, "format": "jpeg"}}},
    "skipped samples": {"on_bad_sample": "skip", "validate": "header"},
}


@pytest.mark.parametrize("shape", at_night(*SHAPES, but=("shuffle_seed", "skipped samples")))
def test_segments_of_every_shape_are_made_again(tmp_path, shape):
    """Two segments, the second with another class; every shard of both is lost."""
    fields = SHAPES[shape]
    objects = {f"{name}/{n}.png": png(n, 20, 20) for name in "ab" for n in range(6)}
    lab = directory_lab(tmp_path, objects, **{"cache": None, "validate": "header", **fields})
    if fields.get("on_bad_sample"):
        write(str(lab.source), {"a/bad.png": b"no image"})
    lab.prepare()
    write(str(lab.source), {f"c/{n}.png": png(50 + n, 20, 20) for n in range(3)})
    lab.prepare()
    with lab.opened_root() as root:
        files = published(root)
        for key in files:
            if "/shards/" in key or "/index/" in key:
                root.put(key, files[key][:50])
        document = verified(lab, repair=True)
        assert document["status"] == "repaired", document["findings"]
        assert published(root) == files


def test_what_cannot_be_kept_stays(text, root):
    key = shards(root)[0]
    root.put(key, b"gone")
    root.put("work/replaced", b"of somebody else")
    repair = findings(verified(text, repair=True))[key]["repair"]
    assert not repair["done"]
    assert "work/replaced/" in repair["message"]
    assert "not a directory" in repair["message"]
    assert bytes(root.get(key)) == b"gone"
    root.delete("work/replaced")
    assert verified(text, repair=True)["status"] == "repaired"


class BadSector(DelegatingStore):
    """A file cannot be read while it has the bytes that are on the bad sector."""

    def __init__(self, inner: Store, key: str, data: bytes) -> None:
        super().__init__(inner)
        self.bad = key, data

    def around(self, method: str, key: str, call: Callable[..., Any], **options: Any) -> Any:
        at_once = method in ("open", "get") and key == self.bad[0]
        if at_once and bytes(self.inner.get(key)) == self.bad[1]:
            raise ObjectError("object.unreadable", "Input/output error")
        return call(**options)


@pytest.mark.parametrize("names", [2, 1])
def test_what_cannot_be_read_is_kept_by_a_second_name_or_stays(text, root, monkeypatch, names):
    key, files = shards(root)[0], published(root)
    wrong = flipped(files[key])
    root.put(key, wrong)
    if names == 1:
        monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError(errno.EPERM, "no")))
    with between(lambda store: BadSector(store, key, wrong)):
        repair = findings(verified(text, repair=True))[key]["repair"]
    assert repair["done"] == (names == 2)
    assert published(root) == (files if names == 2 else {**files, key: wrong})
    assert forget_replaced(root) == ([wrong] if names == 2 else [])


def test_without_second_names_what_is_replaced_is_copied(text, root, monkeypatch):
    key, files = shards(root)[0], published(root)
    monkeypatch.setattr(os, "link", mock.Mock(side_effect=PermissionError(errno.EPERM, "no links")))
    root.put(key, flipped(files[key]))
    assert verified(text, repair=True)["status"] == "repaired"
    assert published(root) == files
    assert forget_replaced(root) == [flipped(files[key])]


def test_a_link_in_the_place_of_a_file_stays(text, root, tmp_path):
    """Nothing is written where it leads to."""
    one, other, *_ = shards(root)
    place, target = text.folder / one, tmp_path / "of somebody else"
    target.write_bytes(b"x")
    place.unlink()
    place.symlink_to(target)
    root.put(other, b"gone")
    rows = findings(verified(text, repair=True))
    assert rows[other]["repair"]["done"]
    assert "what has its name is no file; move" in rows[one]["repair"]["message"]
    assert place.is_symlink()
    assert target.read_bytes() == b"x"


def exchange(root: Store, one: str, other: str) -> None:
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
