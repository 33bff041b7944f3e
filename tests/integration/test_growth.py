"""Growth in small: what random histories have found, one test for each."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import DOCUMENT, Lab, opened, png, shard_names, write
from required import at_push

from larder.growth import content_check
from larder.pipeline.run_report import run_lines
from larder.versions.runs import read_runs
from tests.support.checker import Published
from tests.support.memory import forget
from tests.support.runs import between

TEXTS = {f"t/a/{number}.txt": b"%d" % number * 400 for number in range(4)}
BAD = b"this is not an image"


class Source:
    """A source with a storage; what it should have is written, the rest is deleted."""

    def __init__(self, folder: Path, kind: str = "directory", **fields: Any) -> None:
        source, storage = f"{folder}/source", f"{folder}/local"
        if kind == "memory":
            source, storage = "memory://growth-source", "s3://memory-growth-local/x"
            forget("growth-source")
            forget("growth-local")
        self.lab = Lab(source, storage, folder / "out", {"on_bad_sample": "skip", **fields})
        self._keys: set[str] = set()

    def prepare(
        self, objects: Mapping[str, bytes], *, compact: bool = False, **more: Any
    ) -> DOCUMENT:
        write(str(self.lab.source), objects)
        with opened(str(self.lab.source)) as store:
            for key in self._keys - objects.keys():
                store.delete(key)
        self._keys = set(objects)
        with between():
            return self.lab.compact(**more) if compact else self.lab.prepare(**more)

    def check(self) -> dict[str, Published]:
        """Everything that is published, checked."""
        return self.lab.check()


def assert_compacted(
    tmp_path: Path, source: Source, objects: Mapping[str, bytes], **more: Any
) -> None:
    """A compaction gives what a first build gives, and the next one has nothing to do."""
    document = source.prepare(objects, compact=True, **more)
    first = Source(tmp_path / "first", **source.lab.fields)
    expected = first.prepare(objects, **more)
    assert document["digest"] == expected["digest"]
    (published,) = first.check().values()
    assert shard_names(source.check()[document["version"]]) == shard_names(published)
    again = source.prepare(objects, compact=True, **more)
    assert (again["version"], again["status"]) == (document["version"], "reused")


@pytest.mark.parametrize("kind", ["directory", *at_push("memory")])
def test_a_version_counts_the_bad_samples_that_are_there(tmp_path, kind):
    """The record of a bad sample stays in its segment; the version ID says which ones apply."""
    bad = {**TEXTS, "t/a/bad.png": BAD}
    source = Source(tmp_path, kind, mirror=False)
    states = [bad, TEXTS, bad, {**TEXTS, "t/a/bad.png": png(1)}, TEXTS, bad]
    found = [source.prepare(objects) for objects in states]
    assert [document["skipped"] for document in found] == [1, 0, 1, 0, 0, 1]
    versions = [document["version"] for document in found]
    assert versions[1] == versions[4], "the same samples, and none left out"
    assert versions[0] == versions[2] == versions[5]
    assert len(set(versions)) == 3
    checked = source.check()
    assert [checked[version].version.skipped for version in versions] == [1, 0, 1, 0, 0, 1]


def test_records_count_also_while_bad_samples_are_not_skipped(tmp_path):
    bad = {**TEXTS, "t/a/bad.png": BAD}
    source = Source(tmp_path)
    versions = [
        source.prepare(objects, **fields)["version"]
        for objects, fields in ((bad, {}), (TEXTS, {"on_bad_sample": "fail"}), (bad, {}))
    ]
    assert versions[0] == versions[2] != versions[1]


@pytest.mark.parametrize("most_bytes", [content_check.MAX_CHECKED_BYTES, *at_push(10)])
def test_a_sample_that_is_bad_in_another_way_is_planned_alike_everywhere(
    tmp_path, most_bytes, monkeypatch
):
    """A file system does not tell whether its content has changed; a bucket does."""
    monkeypatch.setattr(content_check, "MAX_CHECKED_BYTES", most_bytes)
    shards = {"bytes": 5_000}
    states = [{"t/a/1.png": BAD, **TEXTS}, {"t/a/1.png": BAD[::-1], **TEXTS, **MORE}]
    digests = []
    for kind in ("directory", "memory"):
        source = Source(tmp_path / kind, kind, shards=shards)
        found = [source.prepare(objects) for objects in states]
        assert [document["skipped"] for document in found] == [1, 1]
        digests.append([document["digest"] for document in found])
    assert digests[0] == digests[1]


def test_a_run_says_what_changed_as_its_plan_does(tmp_path):
    source = Source(tmp_path, labels={"from": "folder"})
    objects = {f"{name}/{number}.txt": b"%d" % number for name in "ab" for number in range(3)}
    first = source.prepare(objects)
    assert first["growth"]["previous"] is None
    assert first["growth"]["samples"]["added"] == 6
    assert not [line for line in run_lines(first) if "changes" in line]
    grown = {**objects, "a/7.txt": b"new", "b/0.txt": b"other"}
    del grown["a/1.txt"]
    second = source.prepare(grown)
    assert second["growth"]["previous"] == first["version"]
    counts = {name: count for name, count in second["growth"]["samples"].items() if count}
    assert counts == {"unchanged": 4, "added": 1, "changed": 1, "removed": 1}
    row = "  changes  1 added, 1 changed, 1 removed, 4 unchanged, since version "
    assert f"{row}{first['version']}" in run_lines(second)
    again = source.lab.prepare()
    assert again["growth"] is None
    assert run_lines(again)


def test_a_run_that_publishes_or_moves_the_tag_is_recorded(tmp_path):
    source = Source(tmp_path, "memory", labels={"from": "folder"}, growth={"removals": "omit"})
    objects = {f"{name}/{number}.txt": b"%d" % number for name in "ab" for number in range(3)}
    grown = {**objects, "a/7.txt": b"new", "b/0.txt": b"other"}
    del grown["a/1.txt"]
    first, second = source.prepare(objects)["version"], source.prepare(grown)["version"]
    assert source.prepare(grown)["status"] == "reused", "which is not recorded"
    source.prepare(objects, growth={"mode": "rebuild"})  # back to the first
    with between(), source.lab.opened_root() as root:
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


MORE = {f"t/a/0{number}.txt": b"%d" % number * 400 for number in range(9)} | {
    f"t/a/10{number}.txt": b"%d" % number * 400 for number in range(9)
}


@pytest.mark.push
def test_a_single_segment_that_is_not_the_first_one_is_compacted(tmp_path):
    """Its shards are numbered from where those of the first one ended."""
    source = Source(tmp_path, shards={"bytes": 4_000})
    first, second = {"t/a/1.txt": b"1" * 900}, {"t/a/2.txt": b"2" * 900}
    source.prepare(first)
    source.prepare(first | second)
    source.prepare(second)
    assert_compacted(tmp_path, source, second)


@pytest.mark.push
def test_a_segment_that_was_planned_with_a_bad_sample_is_compacted(tmp_path):
    """The shards would be cut in other places without it."""
    source = Source(tmp_path, shards={"bytes": 4_000})
    source.prepare({**TEXTS, "t/a/00.png": BAD})
    source.prepare(TEXTS)
    assert_compacted(tmp_path, source, TEXTS)


@pytest.mark.push
def test_a_segment_of_another_count_min_is_compacted(tmp_path):
    source = Source(tmp_path)
    source.prepare(TEXTS, shards={"count_min": 4})
    source.prepare(TEXTS, shards={"count_min": 2})
    assert_compacted(tmp_path, source, TEXTS, shards={"count_min": 2})


@pytest.mark.push
def test_a_compaction_checks_images_that_were_checked_more_weakly(tmp_path):
    """Its header is an image's, but it cannot be decoded."""
    source = Source(tmp_path)
    objects = {**TEXTS, "t/a/cut.png": png(1)[:-30]}
    source.prepare(objects)
    source.prepare(objects, validate="decode")
    assert_compacted(tmp_path, source, objects, validate="decode")


def test_a_shard_of_bad_samples_alone_is_no_reason_to_pack_again(tmp_path):
    """With ``shards.count_min``, it counts as one that a first build cannot have either."""
    large, small = b"1" * 4_000, b"2" * 100
    objects = {"t/a/1.txt": large, "t/a/2.png": BAD * 200, "t/a/3.txt": small, "t/a/4.txt": small}
    source = Source(tmp_path, shards={"count_min": 3})
    first = source.prepare(objects)
    assert (first["shards"]["count"], first["shards"]["samples"]) == (2, 3)
    touched = source.prepare(objects)
    assert (touched["version"], touched["status"]) == (first["version"], "reused")


def texts(classes: str, numbers: range) -> dict[str, bytes]:
    return {
        f"{name}/{at:02}.txt": f"{name} {at} ".encode() * 40 for name in classes for at in numbers
    }


def splits(fraction: float = 0.25, **more: Any) -> dict[str, Any]:
    fractions = {"train": 1 - fraction, "validation": fraction}
    return {"by": "hash", "seed": 7, "fractions": fractions, "stratify": True, **more}


def split_of(published: Published) -> dict[str, str]:
    return {each.key: split for split, found in published.samples.items() for each in found}


def by_class(found: dict[str, str]) -> dict[str, Counter[str]]:
    return {
        name: Counter(split for key, split in found.items() if key.startswith(name))
        for name in sorted({key[0] for key in found})
    }


FIELDS: dict[str, Any] = {
    "labels": {"from": "folder"},
    "shards": {"bytes": 8_000},
    "splits": splits(),
}


@pytest.mark.push
@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_growth_packs_only_new_samples_and_fills_up_the_classes(tmp_path, kind):
    source = Source(tmp_path, kind, **FIELDS)
    document = source.prepare(texts("ab", range(8)))
    first = split_of(source.check()[document["version"]])
    assert by_class(first) == {name: Counter(train=6, validation=2) for name in "ab"}
    document = source.prepare(texts("ab", range(12)) | texts("c", range(4)))
    grown = source.check()[document["version"]]
    found = split_of(grown)
    assert {key: found[key] for key in first} == first
    assert by_class(found)["a"] == by_class(found)["b"] == Counter(train=9, validation=3)
    assert by_class(found)["c"] == Counter(train=3, validation=1)
    assert len(grown.version.segments) == 2
    assert grown.version.omitted == 0, "a sample was moved"
    compacted = source.prepare(texts("ab", range(12)) | texts("c", range(4)), compact=True)
    again = source.check()[compacted["version"]]
    assert len(again.version.segments) == 1
    assert split_of(again) == found
