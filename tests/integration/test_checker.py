"""The tests' checker finds whatever is wrong with versions of several segments."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, flip
from verify_lab import grown_lab

from larder.errors import LarderError
from larder.manifest.sealed import seal, unseal
from larder.segments import contents
from larder.store import Store
from larder.versions import layout
from larder.versions import omitted as omission
from larder.versions.documents import OmittedRows, VersionDocument
from larder.versions.publish import read_version
from tests.support.checker import check_all


def make(folder: Path) -> Lab:
    return grown_lab(folder, shards={"bytes": 4_000})


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return make(tmp_path_factory.mktemp("made"))


@pytest.fixture
def lab(made: Lab, tmp_path: Path) -> Lab:
    """A copy of it."""
    shutil.copytree(str(made.storage), tmp_path / "local")
    return replace(made, storage=str(tmp_path / "local"))


def test_it_accepts_what_was_made(lab):
    (first, second) = sorted(lab.check().values(), key=lambda each: len(each.version.segments))
    assert first.version.omitted == 0
    assert second.version.omitted == 5
    kept = {sample.key for split in first.samples.values() for sample in split}
    found = {sample.key for split in second.samples.values() for sample in split}
    assert found == kept - {"a/00", "a/02", "b/03", "c/06"} | {"a/zz"}


Alter = Callable[[VersionDocument], VersionDocument]


def split(**changes: Callable[[Any], Any]) -> Alter:
    """Change fields of the split train."""

    def altered(version: VersionDocument) -> VersionDocument:
        facts = version.splits["train"]
        new = {name: change(getattr(facts, name)) for name, change in changes.items()}
        return replace(version, splits={**version.splits, "train": replace(facts, **new)})

    return altered


def rows(change: Callable[[OmittedRows], OmittedRows]) -> Alter:
    """Change the rows of train that are omitted from the first segment."""

    def altered(version: VersionDocument) -> VersionDocument:
        first, second = version.segments
        gone = {**first.omitted, "train": change(first.omitted["train"])}
        return replace(version, segments=(replace(first, omitted=gone), second))

    return altered


def cached(change: Callable[[Any], Any]) -> Alter:
    """Change the list of cache files of train."""

    def altered(version: VersionDocument) -> VersionDocument:
        assert version.cache is not None
        files = {**version.cache.splits, "train": change(version.cache.splits["train"])}
        return replace(version, cache=replace(version.cache, splits=files))

    return altered


def moved(ranges: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int], ...]:
    """The last range, one row further."""
    *others, (start, stop) = ranges
    return (*others, (start + 1, stop + 1))


ALTERATIONS: dict[str, Alter] = {
    "samples": split(samples=lambda n: n + 1),
    "patterns in another order": split(patterns=lambda names: names[::-1]),
    "other rows": rows(lambda found: replace(found, ranges=moved(found.ranges))),
    "rows that do not exist": rows(lambda found: replace(found, ranges=((98, 98 + found.count),))),
    "ranges that touch": rows(lambda found: replace(found, count=2, ranges=((0, 1), (1, 2)))),
    "a cache file missing": cached(lambda files: files[:-1]),
    "another cache": lambda version: replace(
        version, segments=(replace(version.segments[0], cache="f" * 32), version.segments[1])
    ),
    "segments in another order": lambda version: replace(version, segments=version.segments[::-1]),
    "a manifest missing": lambda version: replace(version, files=version.files[1:]),
    "another digest": lambda version: replace(version, digest="0" * 64),
    # Were a changed sample not omitted from the old segment, both would be read.
    "a key twice": lambda version: replace(
        version, segments=tuple(replace(use, omitted={}) for use in version.segments)
    ),
}


def latest(root: Store) -> VersionDocument:
    tag = unseal(root.get(layout.tag_key("latest")), "")
    found = read_version(root, tag["version"])
    assert found is not None
    return found


@pytest.mark.parametrize("name", ALTERATIONS)
@pytest.mark.exhaustive(after=3)
def test_version_documents(lab, name):
    with lab.opened_root() as root:
        version = ALTERATIONS[name](latest(root))
        root.put(layout.version_key(version.id), seal(version))
        with pytest.raises((AssertionError, LarderError)):
            check_all(root)


def test_caches_that_no_version_uses_any_more(lab):
    lab.prepare(cache=None)
    flip(lab.files("train-*.mdb")[0])
    with pytest.raises(AssertionError):
        lab.check()


def test_what_does_not_belong_to_a_segment(lab):
    lab.files("*.tar")[0].with_name("more.tar").write_bytes(b"more")
    with pytest.raises(AssertionError):
        lab.check()


def test_a_tag_that_names_no_version(lab):
    with lab.opened_root() as root:
        root.delete(layout.version_key(latest(root).id))
        with pytest.raises(AssertionError):
            check_all(root)


@pytest.mark.parametrize("kind", ["manifests/omitted-*.npy", "lists/train-*.txt"])
def test_lists_and_files_of_omitted_rows(tmp_path, kind, monkeypatch):
    """They exist only where there are many."""
    monkeypatch.setattr(contents, "MAX_PATTERNS", 1)
    monkeypatch.setattr(omission, "MAX_INLINE_RANGES", 1)
    lab = make(tmp_path)
    path = lab.file(kind)
    with pytest.raises(AssertionError):
        lab.check()
    monkeypatch.setattr("tests.support.checker._PATTERNS", 1)
    monkeypatch.setattr("tests.support.checker._INLINE", 1)
    lab.check()
    flip(path)
    with pytest.raises((AssertionError, LarderError)):
        lab.check()
