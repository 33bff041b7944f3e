"""Growth in small: what random histories have found, one case for each."""

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import DOCUMENT, Lab, directory_lab, images, objects_of, opened, png, shard_names
from required import at_push

from larder.growth import content_check
from larder.pipeline.run_report import run_lines
from larder.versions import layout
from larder.versions.runs import read_runs
from larder.versions.tags import TagEntry
from tests.support.checker import Published
from tests.support.memory import forget
from tests.support.runs import between
from tests.support.stores import keys_of

BAD = b"this is not an image"
TEXTS = {f"t/a/{number}.txt": b"%d" % number * 400 for number in range(4)}
MORE = {f"t/a/{at}{number}.txt": b"%d" % number * 400 for number in range(9) for at in (0, 10)}
SIX = {f"{name}/{number}.txt": b"%d" % number for name in "ab" for number in range(3)}
GROWN = {key: data for key, data in SIX.items() if key != "a/1.txt"}
GROWN |= {"a/7.txt": b"new", "b/0.txt": b"other"}


@pytest.fixture(autouse=True)
def in_memory() -> Iterator[None]:
    with between():
        yield
    forget("growth-source")
    forget("growth-local")


def lab_of(folder: Path, kind: str = "directory", **fields: Any) -> Lab:
    source, storage = f"{folder}/source", f"{folder}/local"
    if kind == "memory":
        source, storage = "memory://growth-source", "s3://memory-growth-local/x"
    return Lab(source, storage, folder / "out", {"on_bad_sample": "skip", **fields})


def prepare(
    lab: Lab, objects: Mapping[str, bytes], *, compact: bool = False, **more: Any
) -> DOCUMENT:
    """Run when the source has these objects and no others."""
    lab.add(objects)
    with opened(str(lab.source)) as store:
        lab.remove(*(key for key in keys_of(store) if key not in objects))
    return lab.compact(**more) if compact else lab.prepare(**more)


@pytest.mark.parametrize("kind", ["directory", *at_push("memory")])
def test_a_version_counts_the_bad_samples_that_are_there(tmp_path, kind):
    """The record of a bad sample stays in its segment; the version ID says which ones apply."""
    bad, good = {**TEXTS, "t/a/bad.png": BAD}, {**TEXTS, "t/a/bad.png": png(1)}
    lab = lab_of(tmp_path, kind, mirror=False)
    found = [prepare(lab, objects) for objects in (bad, TEXTS, good)]
    found += [prepare(lab, TEXTS, on_bad_sample="fail"), prepare(lab, bad)]
    assert [document["skipped"] for document in found] == [1, 0, 0, 0, 1]
    versions = [document["version"] for document in found]
    assert (versions[1], versions[0]) == (versions[3], versions[4])
    assert len(set(versions)) == 3
    checked = lab.check()
    assert [checked[version].version.skipped for version in versions] == [1, 0, 0, 0, 1]
    prepare(lab, bad | MORE)
    assert lab.compact()["skipped"] == 1


@pytest.mark.parametrize("most_bytes", [content_check.MAX_CHECKED_BYTES, *at_push(10)])
def test_a_sample_that_is_bad_in_another_way_is_planned_alike_everywhere(
    tmp_path, most_bytes, monkeypatch
):
    """A file system does not tell whether its content has changed; a bucket does."""
    monkeypatch.setattr(content_check, "MAX_CHECKED_BYTES", most_bytes)
    states = [{"t/a/1.png": BAD, **TEXTS}, {"t/a/1.png": BAD[::-1], **TEXTS, **MORE}]
    digests = []
    for kind in ("directory", "memory"):
        lab = lab_of(tmp_path / kind, kind, shards={"bytes": 5_000})
        found = [prepare(lab, objects) for objects in states]
        assert [document["skipped"] for document in found] == [1, 1]
        digests.append([document["digest"] for document in found])
    assert digests[0] == digests[1]


def test_a_run_says_what_changed_as_its_plan_does(tmp_path):
    lab = lab_of(tmp_path, labels={"from": "folder"})
    first = prepare(lab, SIX)
    assert (first["growth"]["previous"], first["growth"]["samples"]["added"]) == (None, 6)
    assert not [line for line in run_lines(first) if "changes" in line]
    second = prepare(lab, GROWN)
    assert second["growth"]["previous"] == first["version"]
    counts = {name: count for name, count in second["growth"]["samples"].items() if count}
    assert counts == {"unchanged": 4, "added": 1, "changed": 1, "removed": 1}
    row = "  changes  1 added, 1 changed, 1 removed, 4 unchanged, since version "
    assert f"{row}{first['version']}" in run_lines(second)
    again = lab.prepare()
    assert again["growth"] is None
    assert run_lines(again)


def test_a_run_that_publishes_or_moves_the_tag_is_recorded(tmp_path):
    lab = lab_of(tmp_path, "memory", labels={"from": "folder"}, growth={"removals": "omit"})
    first, second = prepare(lab, SIX)["version"], prepare(lab, GROWN)["version"]
    assert prepare(lab, GROWN)["status"] == "reused", "which is not recorded"
    prepare(lab, SIX, growth={"mode": "rebuild"})  # back to the first
    with lab.opened_root() as root:
        (prepared,) = read_runs(root, second)
        made, again = read_runs(root, first)
    assert (made.previous, made.before, made.after) == (None, None, first)
    assert (len(made.names["added"]), made.changes["added"]) == (6, 6)
    assert (prepared.previous, prepared.before, prepared.after) == (first, first, second)
    assert prepared.names == {"added": ("a/7",), "changed": ("b/0",), "removed": ("a/1",)}
    assert (again.before, again.after) == (second, first)
    assert [each.published for each in (made, prepared, again)] == [True, True, False]
    assert {each.command for each in (made, prepared, again)} == {"prepare"}
    assert {"inventory", "shard", "publish"} <= set(prepared.milliseconds)
    assert "larder-data" in prepared.packages


ONE, OTHER = {"t/a/1.txt": b"1" * 900}, {"t/a/2.txt": b"2" * 900}
CUT = {**TEXTS, "t/a/cut.png": png(1)[:-30]}
SMALL: dict[str, Any] = {"shards": {"bytes": 4_000}}
STATES: dict[str, list[tuple[Mapping[str, bytes], dict[str, Any]]]] = {
    # Its shards are numbered from where those of the first segment ended.
    "a segment that is not the first": [(ONE, SMALL), (ONE | OTHER, SMALL), (OTHER, SMALL)],
    # Its shards would be cut in other places without the bad sample.
    "a bad sample": [({**TEXTS, "t/a/00.png": BAD}, SMALL), (TEXTS, SMALL)],
    "another count_min": [(TEXTS, {"shards": {"count_min": number}}) for number in (4, 2)],
    # The header of the image is right, but it cannot be decoded.
    "a weaker check": [(CUT, {}), (CUT, {"validate": "decode"})],
}


@pytest.mark.push
@pytest.mark.parametrize("states", STATES.values(), ids=STATES)
def test_a_single_segment_of_another_shape_is_compacted_to_a_first_build(tmp_path, states):
    lab, fresh = lab_of(tmp_path), lab_of(tmp_path / "first")
    for objects, fields in states:
        prepare(lab, objects, **fields)
    document = prepare(lab, objects, compact=True, **fields)
    assert document["digest"] == prepare(fresh, objects, **fields)["digest"]
    assert shard_names(lab.check()[document["version"]]) == shard_names(fresh.only())
    again = prepare(lab, objects, compact=True, **fields)
    assert (again["version"], again["status"]) == (document["version"], "reused")


def test_a_shard_of_bad_samples_alone_is_no_reason_to_pack_again(tmp_path):
    """With ``shards.count_min``, it counts as one that a first build cannot have either."""
    large, small = b"1" * 4_000, b"2" * 100
    objects = {"t/a/1.txt": large, "t/a/2.png": BAD * 200, "t/a/3.txt": small, "t/a/4.txt": small}
    lab = lab_of(tmp_path, shards={"count_min": 3})
    first = prepare(lab, objects)
    assert (first["shards"]["count"], first["shards"]["samples"]) == (2, 3)
    touched = prepare(lab, objects)
    assert (touched["version"], touched["status"]) == (first["version"], "reused")


def texts(classes: str, numbers: range) -> dict[str, bytes]:
    return {
        f"{name}/{at:02}.txt": f"{name} {at} ".encode() * 40 for name in classes for at in numbers
    }


def split_of(published: Published) -> dict[str, str]:
    return {each.key: split for split, found in published.samples.items() for each in found}


def by_class(found: dict[str, str], name: str) -> Counter[str]:
    return Counter(split for key, split in found.items() if key.startswith(name))


@pytest.mark.push
@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_growth_packs_only_new_samples_and_fills_up_the_classes(tmp_path, kind):
    fractions = {"train": 0.75, "validation": 0.25}
    splits = {"by": "hash", "seed": 7, "fractions": fractions, "stratify": True}
    fields = {"labels": {"from": "folder"}, "shards": {"bytes": 8_000}, "splits": splits}
    lab = lab_of(tmp_path, kind, **fields)
    document = prepare(lab, texts("ab", range(8)))
    first = split_of(lab.check()[document["version"]])
    assert by_class(first, "a") == by_class(first, "b") == Counter(train=6, validation=2)
    objects = texts("ab", range(12)) | texts("c", range(4))
    document = prepare(lab, objects)
    grown = lab.check()[document["version"]]
    found = split_of(grown)
    assert {key: found[key] for key in first} == first
    assert by_class(found, "a") == by_class(found, "b") == Counter(train=9, validation=3)
    assert by_class(found, "c") == Counter(train=3, validation=1)
    assert len(grown.version.segments) == 2
    assert grown.version.omitted == 0, "a sample was moved"
    compacted = prepare(lab, objects, compact=True)
    again = lab.check()[compacted["version"]]
    assert len(again.version.segments) == 1
    assert split_of(again) == found
    lab.add(texts("d", range(1)))
    for other in ({"splits": {**splits, "seed": 8}}, {"growth": {"mode": "rebuild"}}):
        assert lab.plan(**other)["growth"]["samples"]["moved"], "another rule divides all anew"


ADDED = [{"0/00.png": png(90)}, {"0/01.png": png(91), "a/00.png": png(92)}]


@pytest.mark.push
@pytest.mark.parametrize("deleted", [2, 3])
def test_the_newest_version_that_is_left_is_grown(tmp_path, deleted):
    """Without any, the dataset is built like the first time."""
    lab = directory_lab(tmp_path)
    documents = [lab.prepare()]
    for objects in ADDED:
        lab.add(objects)
        documents.append(lab.prepare())
    assert [document["segments"]["total"] for document in documents] == [1, 2, 3]
    for document in documents[3 - deleted :]:
        (lab.folder / layout.version_key(document["version"])).unlink()
    again = lab.prepare()
    published = lab.newest()
    assert objects_of(published) == images() | ADDED[0] | ADDED[1]
    assert lab.tag.history[-1] == TagEntry(documents[-1]["version"], documents[-1]["inputs"])
    segments = [use.id for use in published.version.segments]
    if deleted == 2:  # the class 0 comes after those that have numbers
        assert published.version.classes == ("a", "b", "c", "0")
        (first,) = lab.check()[documents[0]["version"]].version.segments
        assert (len(segments), segments[0]) == (2, first.id)
    else:
        fresh = directory_lab(tmp_path / "fresh", images() | ADDED[0] | ADDED[1]).prepare()
        assert (len(segments), again["digest"]) == (1, fresh["digest"])
    assert lab.prepare()["status"] == "reused"
