"""A run whose version exists already checks that it is complete, by listing it."""

import re
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, flip, images, memory_lab, write
from required import at_night
from verify_lab import grown_lab

import larder
from larder.errors import DamageError
from larder.pipeline.prepare import prepare
from larder.segments import derived_files
from larder.versions import omitted
from tests.support.checker import check_version
from tests.support.runs import between

pytestmark = pytest.mark.push

FIELDS: dict[str, Any] = {"splits": {"train": ["a/**", "b/**"], "validation": "c/**"}}


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
    documents = re.findall(r"(?:segments|versions)/[\w/]+\.json", error.hint)
    place = "cache" if "/caches/" in error.where else "segment"
    expected = ["version"] if "/versions/" in error.where else [place, "version"]
    assert [name.rpartition("/")[2] for name in documents] == [f"{name}.json" for name in expected]
    assert f"below {lab.root}" in error.hint
    lab.do_as_it_says(error)


def test_the_first_is_named_and_the_others_are_counted(tmp_path):
    lab = directory_lab(tmp_path, **FIELDS)
    lab.prepare()
    for path in lab.files("*.tar"):
        path.unlink()
    error = damage(lab)
    assert error.where.endswith("shards/train/d-train-000000.tar")
    assert error.message == "the file is missing; 5 more files of this version, too"


def test_other_inputs_of_the_same_version_do_not_reuse_a_damaged_one(tmp_path):
    """An object came that makes no sample: the version is found by its content."""
    lab = directory_lab(tmp_path, on_bad_key="skip", **FIELDS)
    lab.prepare()
    write(lab.source, {"README": b"words"})
    path = lab.file("d-train-000001.tar")
    path.unlink()
    assert damage(lab).where == f"file://{path}"
    with pytest.raises(DamageError):
        prepare(lab.settings())


def test_it_costs_a_few_listings_whatever_the_number_of_shards(tmp_path):
    for name, shard_bytes in (("few", 100_000), ("many", 1)):
        fields = {**FIELDS, "labels": {"from": "folder"}, "shards": {"bytes": shard_bytes}}
        lab = memory_lab(tmp_path, name=f"whole-{name}", cache={}, **fields)
        with between():
            first = lab.prepare()
        again, recorder = lab.recorded()
        assert again["status"] == "reused"
        calls = [
            (call.method, call.key)
            for store in recorder.stores
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
            "segments/ID/index/rows-ID.npz",
            "segments/ID/segment.json",
            "tags/latest.json",
            "versions/ID/version.json",
        ]
        assert len(read) <= 7


def grown(folder: Path, removals: str, **fields: Any) -> Lab:
    """A version of two segments, the first of which has a shard without a sample left."""
    growth = {"removals": removals}
    lab = grown_lab(folder, growth=growth, shards={"bytes": 4_000}, **{**FIELDS, **fields})
    assert lab.prepare()["status"] == "reused"
    return lab


def of_segments(lab: Lab, pattern: str) -> list[Path]:
    """Files of both segments, those of the older one first."""
    return [
        path
        for use in lab.newest().version.segments
        for path in sorted((lab.folder / "segments" / use.id).glob(pattern))
    ]


@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize(
    ("pattern", "alter"),
    [
        ("index/sources-*", Path.unlink),
        ("shards/train/*.tar", cut_short),
        ("segment.json", Path.unlink),
        *at_night(
            ("caches/*/train-*.mdb", longer),
            ("index/rows-*", cut_short),
            ("caches/*/train-*.mdb", Path.unlink),
            ("caches/*/cache.json", Path.unlink),
        ),
    ],
)
def test_files_of_every_segment_are_looked_for_and_the_hint_works(tmp_path, pattern, place, alter):
    lab = grown(tmp_path, "repack")
    version = larder.open(f"{lab.storage}/larder/d").version
    unlisted = {*of_segments(lab, "shards/*/*")} - {*listed(lab)}
    path = [path for path in of_segments(lab, pattern) if path not in unlisted][place]
    alter(path)
    error = damage(lab)
    assert error.where == f"file://{path}"
    do_as_it_says(lab, error)
    again = lab.prepare()
    assert again["status"] == "built"
    with lab.opened_root() as root:
        check_version(root, again["version"])
    assert lab.prepare()["status"] == "reused"
    if "cache" in pattern:  # the shards are as they were
        assert (again["version"], again["segments"]["new"]) == (version, 0)
        lab.check()


def listed(lab: Lab) -> list[Path]:
    """The shards of the version of two segments."""
    return [lab.folder / key for key in lab.newest().shards]


@pytest.mark.parametrize("removals", ["omit", *at_night("repack")])
def test_listed_shards_of_every_segment_are_looked_for_and_no_others(tmp_path, removals):
    lab = grown(tmp_path, removals)
    there = listed(lab)
    unlisted = [path for path in of_segments(lab, "shards/*/*.tar") if path not in there]
    assert unlisted
    for path in unlisted:
        path.unlink()
    assert lab.prepare()["status"] == "reused"
    for path in there:
        data = path.read_bytes()
        path.unlink()
        assert damage(lab).where == f"file://{path}"
        path.write_bytes(data[:-1])
        assert damage(lab).where == f"file://{path}"
        path.write_bytes(data)
    assert lab.prepare()["status"] == "reused"


@pytest.mark.parametrize("alter", [cut_short, *at_night(Path.unlink)])
@pytest.mark.parametrize("kind", ["manifests/objects-*", "manifests/omitted-*", "lists/my-train-*"])
def test_files_of_the_version_itself_are_looked_for_and_the_hint_works(
    tmp_path, alter, kind, monkeypatch
):
    monkeypatch.setattr(derived_files, "MAX_PATTERNS", 1)
    monkeypatch.setattr(omitted, "MAX_INLINE_RANGES", 1)
    splits = {"my-train": ["a/**", "b/**"], "validation": "c/**"}
    lab = grown(tmp_path, "repack", splits=splits)
    first = lab.prepare()
    (path,) = (lab.folder / "versions" / first["version"]).glob(kind)
    alter(path)
    error = damage(lab)
    assert (error.code, error.exit_status) == ("damage.size", 4)
    assert error.where == f"file://{path}"
    do_as_it_says(lab, error)
    assert lab.prepare()["digest"] == first["digest"]


def test_damaged_omitted_rows_are_not_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(omitted, "MAX_INLINE_RANGES", 1)
    lab = grown(tmp_path, "omit")
    path = lab.file("manifests/omitted-*.npy")
    flip(path)
    error = damage(lab)
    assert (error.code, error.where) == ("damage.digest", f"file://{path}")


def test_a_record_of_bad_samples_is_looked_for(tmp_path):
    objects = images("abc", each=8) | {"a/05.png": b"no image"}
    lab = directory_lab(tmp_path, objects, on_bad_sample="skip", **FIELDS)
    lab.prepare()
    path = lab.file("skipped-*.parquet")
    cut_short(path)
    assert damage(lab).where == f"file://{path}"
