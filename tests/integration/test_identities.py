"""Which identities a change of the dataset file or of the source changes, in complete runs.

The objects are in memory, where an etag follows from the bytes alone, so the identities of these
runs are the same everywhere: tests/golden/identities.json has them.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from golden_identities import assert_golden
from pipeline_lab import memory_lab
from required import at_push

from tests.support.runs import between

OBJECTS = {
    **{
        f"{folder}/{name}.pgm": b"P5 2 2 255 %c%c%c%c" % (place, number, 30, 40)
        for place, folder in enumerate("abc")
        for number, name in enumerate(("00", "01", "02", "03"))
    },
    "a/00.json": b"{}",
    "labels.txt": b"a/00.pgm a\nb/00.pgm b\n",
}
BASE: Mapping[str, Any] = {
    "splits": {"test": "*/00.*", "train": "**"},
    "labels": {"from": "folder", "files": {"test": "labels.txt"}},
    "source": {"exclude": ["c/00.*"]},
    "shards": {"bytes": 6_000},
    "validate": "decode",
    "cache": {"records": "encoded"},
}


def first_build(
    folder: Path, objects: Mapping[str, bytes] = OBJECTS, **fields: Any
) -> dict[str, Any]:
    given = {**BASE, **fields}
    source = given.pop("source")
    lab = memory_lab(folder, objects, **given)
    lab = replace(lab, source={"url": lab.source, **source})
    with between():
        lab.prepare()
    version = lab.only().version
    (use,) = version.segments
    return {
        "inputs": version.inputs,
        "segment": use.id,
        "cache": use.cache,
        "version": version.id,
        "content": version.digest,
    }


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shelf")


@pytest.fixture(scope="module")
def base(shelf: Path) -> dict[str, Any]:
    return first_build(shelf)


ALL = {"inputs", "segment", "cache", "version", "content"}
SHAPE = ALL - {"content"}
LABELS = BASE["labels"]

CASES: list[Any] = [
    ({}, set()),
    ({"mirror": True}, set()),
    ({"cluster": {"runner": {"batch_bytes": 5_000, "workers": 1}}}, set()),
    ({"source": {"include": ["*/*", "labels.txt"], **BASE["source"]}}, set()),
    ({"on_bad_key": "fail", "on_bad_sample": "fail", "cache": {}}, set()),
    *at_push(
        # Other inputs, of which the same becomes.
        ({"on_bad_key": "skip"}, {"inputs"}),
        ({"labels": {**LABELS, "classes": ["a", "b", "c"]}}, {"inputs"}),
        # The same samples for other classes, which neither shards nor caches mention.
        ({"labels": {**LABELS, "classes": ["a", "b", "c", "d"]}}, {"inputs", "version", "content"}),
        # Shards made in another way, which have the same bytes.
        ({"validate": "header"}, SHAPE),
        # Caches alone.
        ({"cache": None}, {"inputs", "cache", "version", "content"}),
        # Everything.
        ({"shards": {**BASE["shards"], "shuffle_seed": 1}}, ALL),
        ({"source": {"exclude": ["c/00.*", "c/01.*"]}}, ALL),
    ),
]


@pytest.mark.parametrize(("fields", "changed"), CASES)
def test_a_field_changes_the_identities_that_it_must(shelf, base, fields, changed):
    found = first_build(shelf, **fields)
    assert {name for name in ALL if found[name] != base[name]} == changed


def test_identities_of_runs(shelf, base):
    hashed = {"by": "hash", "seed": 1, "fractions": {"train": 0.5, "test": 0.5}}
    assert_golden(
        "runs",
        {
            "base": base,
            "plain": first_build(
                shelf, splits={"train": "**"}, labels=None, shards={}, validate="header", cache=None
            ),
            "shuffled": first_build(
                shelf,
                splits=hashed,
                labels={"from": "folder"},
                source={"exclude": ["labels.txt"]},
                shards={"shuffle_seed": 7, "count_min": 3},
                cache={"records": "decoded"},
            ),
        },
    )
