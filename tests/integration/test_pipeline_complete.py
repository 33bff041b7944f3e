"""A run whose version exists checks that it is complete; what is damaged can be made again."""

import re
from collections.abc import Callable
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, flip, images, memory_lab, objects_of, png, write
from required import at_night

from larder.errors import DamageError, FatalError
from larder.segments import derived_files
from larder.versions import omitted
from tests.support import checker
from tests.support.checker import check_version
from tests.support.runs import between
from tests.support.stores import LosingStore

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {"splits": {"my-train": ["a/**", "b/**"], "validation": "c/**"}}
OBJECTS = images("abc", each=8) | {"a/05.png": b"no image"}
REMOVED = ("a/00.png", "a/00.json", "a/02.png", "b/03.png", "c/06.png")
ADDED = {"a/zz.png": png(7), "c/00.png": png(8)}
LEFT = {key: data for key, data in OBJECTS.items() if key not in (*REMOVED, "a/05.png")} | ADDED


def grown(folder: Path, removals: str = "repack") -> Lab:
    """Two segments: the first has a bad sample, and a shard without a sample left."""
    fields = {
        **FIELDS,
        "growth": {"removals": removals},
        "cache": {"records": "encoded"},
        "shards": {"bytes": 4_000},
        "on_bad_sample": "skip",
        "mirror": True,
    }
    lab = directory_lab(folder, OBJECTS, **fields)
    lab.prepare()
    lab.remove(*REMOVED)
    lab.add(ADDED)
    lab.prepare()
    assert lab.prepare()["status"] == "reused"
    return lab


def damage(lab: Lab) -> DamageError:
    with pytest.raises(DamageError) as caught:
        lab.prepare()
    return caught.value


def carried_out(lab: Lab) -> dict[str, Any]:
    """The run, after doing as the errors say, which are two at most."""
    for _ in range(2):
        try:
            return lab.prepare()
        except DamageError as error:
            if "delete it" in error.hint:
                Path(error.where.removeprefix("file://")).unlink()
            for key in re.findall(r"(?:segments|versions)/[\w/]+\.json", error.hint):
                (lab.folder / key).unlink(missing_ok=True)
    return lab.prepare()


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


@pytest.mark.parametrize(
    ("pattern", "alter", "place"),
    [
        ("segments/*/index/sources-*", Path.unlink, -1),
        ("segments/*/index/skipped-*", cut_short, 0),
        ("segments/*/shards/my-train/*.tar", cut_short, 0),
        ("segments/*/shards/my-train/*.tar", cut_short, -1),
        ("segments/*/segment.json", Path.unlink, 0),
        ("versions/*/manifests/objects-*", cut_short, 0),
        ("versions/*/manifests/omitted-*", cut_short, 0),
        ("versions/*/lists/my-train-*", cut_short, 0),
        ("versions/*/version.json", flip, 0),
        ("tags/latest.json", flip, 0),
        *at_night(
            ("segments/*/index/sources-*", Path.unlink, 0),
            ("segments/*/segment.json", Path.unlink, -1),
            ("segments/*/caches/*/my-train-*.mdb", longer, 0),
            ("segments/*/index/rows-*", cut_short, -1),
            ("segments/*/caches/*/my-train-*.mdb", Path.unlink, -1),
            ("segments/*/caches/*/cache.json", Path.unlink, 0),
            ("versions/*/manifests/objects-*", Path.unlink, 0),
            ("versions/*/manifests/omitted-*", Path.unlink, 0),
            ("versions/*/lists/my-train-*", Path.unlink, 0),
        ),
    ],
)
def test_every_file_of_a_version_is_looked_for_and_the_hint_works(
    tmp_path, pattern, alter, place, monkeypatch
):
    monkeypatch.setattr(derived_files, "MAX_PATTERNS", 1)
    monkeypatch.setattr(omitted, "MAX_INLINE_RANGES", 1)
    monkeypatch.setattr(checker, "_PATTERNS", 1)
    monkeypatch.setattr(checker, "_INLINE", 1)
    lab = grown(tmp_path)
    newest = lab.newest()
    unlisted = {*lab.folder.glob("segments/*/shards/*/*")}
    unlisted -= {lab.folder / key for key in newest.shards}
    own = [*(use.id for use in newest.version.segments), newest.version.id, "tags"]
    path = [
        path
        for name in own
        for path in sorted(lab.folder.glob(pattern))
        if name in path.parts and path not in unlisted
    ][place]
    alter(path)
    error = damage(lab)
    assert (error.where, error.exit_status) == (f"file://{path}", 4)
    again = carried_out(lab)
    with lab.opened_root() as root:
        assert objects_of(check_version(root, again["version"])) == LEFT
    if "caches" in pattern:  # the shards are as they were
        assert (again["version"], again["segments"]["new"]) == (newest.version.id, 0)
    assert lab.prepare()["status"] == "reused"


@pytest.mark.parametrize(
    "pattern", ["segments/*/segment.json", "versions/*/*/objects-*", "work/mirror/manifest-*"]
)
def test_what_a_growth_reads_is_found_damaged_or_made_again(tmp_path, pattern):
    lab = directory_lab(tmp_path, mirror=True)
    lab.prepare()
    (path,) = lab.folder.glob(pattern)
    flip(path)
    lab.add({"a/00.png": png(91)})
    again = carried_out(lab)
    with lab.opened_root() as root:
        published = check_version(root, again["version"])
    assert objects_of(published) == images() | {"a/00.png": png(91)}
    assert lab.prepare()["status"] == "reused"


def test_the_first_is_named_and_the_others_are_counted(tmp_path):
    lab = directory_lab(tmp_path, on_bad_key="skip", **FIELDS)
    lab.prepare()
    write(lab.source, {"README": b"words"})  # makes no sample: the version is found by its content
    for path in lab.files("*.tar"):
        path.unlink()
    error = damage(lab)
    assert error.where.endswith("shards/my-train/d-my-train-000000.tar")
    assert error.message == "the file is missing; 5 more files of this version, too"


@pytest.mark.parametrize("removals", ["omit", *at_night("repack")])
def test_shards_that_are_listed_no_longer_are_not_missed(tmp_path, removals):
    lab = grown(tmp_path, removals)
    listed = {lab.folder / key for key in lab.newest().shards}
    unlisted = [path for path in lab.files("segments/*/shards/*/*.tar") if path not in listed]
    assert unlisted
    for path in unlisted:
        path.unlink()
    assert lab.prepare()["status"] == "reused"


def test_damaged_omitted_rows_are_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(omitted, "MAX_INLINE_RANGES", 1)
    lab = grown(tmp_path, "omit")
    path = lab.file("manifests/omitted-*.npy")
    flip(path)
    error = damage(lab)
    assert (error.code, error.where) == ("damage.digest", f"file://{path}")


def test_it_costs_a_few_listings_whatever_the_number_of_shards(tmp_path):
    for shard_bytes in (100_000, 1):
        lab = memory_lab(tmp_path, labels={"from": "folder"}, shards={"bytes": shard_bytes})
        with between():
            lab.prepare()
        again, recorder = lab.recorded()
        assert again["status"] == "reused"
        calls = [call for store in recorder.stores for call in store.calls]
        lists = [call.key for call in calls if call.method == "list" and call.key]
        assert [re.sub(r"[0-9a-f]{32}", "ID", key) for key in sorted(lists)] == [
            *(f"segments/ID/{part}/" for part in ("index", "shards")),
            "versions/ID/",
        ], "no unfinished work: of it there may be more than of all else"
        read = [re.sub(r"[0-9a-f]{16,}", "ID", call.key) for call in calls if call.method != "list"]
        assert sorted(set(read)) == [
            "segments/ID/index/rows-ID.npz",
            "segments/ID/segment.json",
            "tags/latest.json",
            "versions/ID/version.json",
        ]
        assert len(read) <= 7


LOST: list[tuple[str, int | None, str]] = [
    ("segments/*/shards/*.tar", 10, "store.refused"),
    ("segments/*/index/rows-*", None, "store.refused"),
    ("segments/*/caches/*.mdb", 10, "store.refused"),
    ("versions/*/manifests/objects-*", None, "store.refused"),
    ("versions/*/classes.json", 10, "store.refused"),
    ("versions/*/version.json", None, "store.refused"),
    ("segments/*/segment.json", None, "store.refused"),
    ("tags/latest.json", None, "store.refused"),
    ("versions/*/version.json", -1, "damage.digest"),
    ("segments/*/segment.json", -1, "damage.digest"),
    ("tags/latest.json", -1, "damage.digest"),
]


@pytest.mark.parametrize(("lost", "kept_bytes", "code"), LOST)
def test_no_version_names_a_file_that_the_store_acknowledged_and_did_not_keep(
    tmp_path, lost, kept_bytes, code
):
    lab = directory_lab(tmp_path, cache={} if "caches" in lost else None)
    is_lost: Callable[[str], bool] = partial(fnmatch, pat=lost)
    losing = partial(LosingStore, is_lost=is_lost, kept_bytes=kept_bytes)
    with between(losing), pytest.raises(FatalError) as caught:
        lab.prepare()
    assert caught.value.code == code
    assert fnmatch(caught.value.where, f"*/{lost}")
    assert kept_bytes == -1 or not lab.files("latest.json" if "tags" in lost else "version.json")
    carried_out(lab)
    lab.check()
