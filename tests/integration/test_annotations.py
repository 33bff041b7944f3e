"""Annotation files: one file with an entry for each of many samples."""

import csv
import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipeline_lab import DOCUMENT, Lab, opened, png, write
from test_growth import lab_of, prepare

from larder.errors import ConfigError, LarderError
from tests.support.checker import Published
from tests.support.memory import forget
from tests.support.runs import between

IMAGES = {f"images/{name}/{at}.png": png(at) for name in "ab" for at in range(3)}
NAMES = sorted(IMAGES)
BOXES = {
    "info": {"year": 2017},
    "categories": [{"id": 7, "name": "cat"}, {"id": 9, "name": "dög"}],
    "annotations": [
        {"id": 1, "image_id": 2, "category_id": 9, "bbox": [1, 2, 3.5, 4]},
        {"id": 2, "image_id": 0, "category_id": 7, "bbox": [0, 0, 1, 1]},
        {"id": 3, "image_id": 2, "category_id": 7, "bbox": [5, 5, 5, 5]},
    ],
    "images": [
        {"id": at, "file_name": name.removeprefix("images/"), "width": 9, "species": f"s{at % 2}"}
        for at, name in enumerate(NAMES)
    ],
}


def table(**changed: str) -> list[dict[str, Any]]:
    return [
        {"file_name": name, "caption": f"it is, {at}", "score": at, "species": f"s{at % 2}"}
        | ({"caption": changed[name]} if name in changed else {})
        for at, name in enumerate(NAMES)
    ]


def as_csv(rows: list[dict[str, Any]], delimiter: str = ",") -> bytes:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), delimiter=delimiter)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def as_lines(rows: list[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def as_parquet(rows: list[dict[str, Any]]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), target)
    return target.getvalue()


FILES = {
    "table.csv": as_csv(table()),
    "table.tsv": as_csv(table(), "\t"),
    "table.jsonl": as_lines(table()),
    "table.parquet": as_parquet(table()),
}


def source(folder: Path, **fields: Any) -> Lab:
    defaults: dict[str, Any] = {"shards": {"bytes": 4_000}, "splits": {"train": "images/**"}}
    return lab_of(folder, **{**defaults, **fields})


def parts(published: Published) -> dict[str, Mapping[str, bytes]]:
    return {each.key: each.parts for found in published.samples.values() for each in found}


def prepared(place: Lab, objects: Mapping[str, bytes], **more: Any) -> Published:
    version = prepare(place, objects, **more)["version"]
    return place.check()[version]


@pytest.mark.parametrize("name", FILES)
def test_an_entry_becomes_a_part_of_its_sample(tmp_path, name):
    place = source(tmp_path, samples={"annotations": {"files": name}})
    found = parts(prepared(place, {**IMAGES, name: FILES[name]}))
    assert len(found) == len(IMAGES)
    for row in table():
        own = found[row["file_name"].removesuffix(".png")]
        if name.startswith("table.") and name.endswith("sv"):  # a text file has only texts
            row = {column: str(value) for column, value in row.items()}
        expected = json.dumps(row, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        assert own == {"png": IMAGES[row["file_name"]], "json": expected.encode()}


def test_coco(tmp_path):
    place = lab_of(
        tmp_path,
        samples={"annotations": {"files": "boxes.json"}},
        labels={"column": "species"},
        splits={"train": "images/**"},
        mirror=False,
    )
    published = prepared(place, {**IMAGES, "boxes.json": json.dumps(BOXES).encode()})
    assert published.version.classes == ("s0", "s1")
    found = parts(published)
    assert [found[name.removesuffix(".png")]["cls"] for name in NAMES] == [b"0", b"1"] * 3
    entry = json.loads(found["images/a/2"]["json"])
    assert entry["image"]["file_name"] == "a/2.png"
    assert [(each["category"], each["bbox"]) for each in entry["annotations"]] == [
        ("dög", [1, 2, 3.5, 4]),
        ("cat", [5, 5, 5, 5]),
    ]
    assert json.loads(found["images/b/0"]["json"])["annotations"] == []


def test_a_sample_may_have_several_entries(tmp_path):
    rows = [{"image": name, "box": [at]} for at in range(2) for name in NAMES]
    annotations = {"files": "boxes.jsonl", "key": "image", "many": True, "columns": {"n": "box"}}
    place = source(tmp_path, samples={"annotations": annotations}, mirror=True)
    found = parts(prepared(place, {**IMAGES, "boxes.jsonl": as_lines(rows)}))
    with opened(f"{place.root}mirror") as store:
        assert {info.key for page in store.list() for info in page} == {*IMAGES, "boxes.jsonl"}
    for name in NAMES:
        own = found[name.removesuffix(".png")]
        assert json.loads(own["json"]) == [{"box": [at], "image": name} for at in range(2)]
        assert json.loads(own["n"]) == [[0], [1]]


@pytest.mark.push
@pytest.mark.parametrize("kind", ["directory", "memory"])
def test_a_changed_entry_packs_its_sample_again_and_no_other(kind, tmp_path):
    """Also where the others have moved in the file."""
    fields: dict[str, Any] = {
        "samples": {"annotations": {"files": "table.jsonl"}},
        "splits": {"train": "images/a/*", "validation": "images/b/*"},
        "growth": {"removals": "omit"},
    }
    forget("growth-source")
    forget("growth-local")
    with between():
        place = lab_of(tmp_path, kind, mirror=False, **fields)
        first = prepare(place, {**IMAGES, "table.jsonl": as_lines(table())})
        changed = as_lines(table(**{"images/a/1.png": "something much longer than before"})[::-1])
        document = prepare(place, {**IMAGES, "table.jsonl": changed})
        assert document["segments"] == {"total": 2, "new": 1, "omitted": 1}
        published = place.check()[document["version"]]
        assert b"much longer" in parts(published)["images/a/1"]["json"]
        again = prepare(place, {**IMAGES, "table.jsonl": changed + b"\n"})
        assert again["version"] == document["version"] != first["version"]


def refused(place: Lab, objects: Mapping[str, bytes], **more: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        prepare(place, objects, **more)
    return caught.value


def test_entries_and_samples_without_each_other(tmp_path):
    rows = [row for row in table() if row["file_name"] != "images/a/0.png"]
    rows.append({**rows[0], "file_name": "images/z.png"})
    objects = {**IMAGES, "table.jsonl": as_lines(rows)}
    samples: dict[str, Any] = {"annotations": {"files": "table.jsonl"}}
    place = source(tmp_path, samples=samples)
    error = refused(place, objects)
    assert (error.code, error.where) == ("config.missing_part", "images/a/0")
    document: DOCUMENT = prepare(place, objects, samples={**samples, "missing": "skip"})
    assert document["skipped"] == 2
    assert not document["warnings"]
    assert {failure["key"] for failure in document["failures"]} == {
        "images/a/0",
        "table.jsonl/images/z.png/json",
    }
    assert len(parts(place.check()[document["version"]])) == len(IMAGES) - 1
    document = prepare(place, objects, samples={**samples, "missing": "keep"})
    found = parts(place.check()[document["version"]])
    assert document["skipped"] == 0
    assert "json" not in found["images/a/0"]
    assert "json" in found["images/a/1"]


MISTAKES: dict[str, tuple[list[dict[str, Any]], dict[str, Any], str]] = {
    "several samples": ([{"file_name": "0.png"}], {}, "0.png"),
    "another part": ([*table(), table()[0]], {}, "t.jsonl/images/a/0.png/json"),
    "no such column": (table(), {"labels": {"column": "nothing"}}, "t.jsonl, line 1"),
    "no class": (
        [{**row, "species": None} for row in table()],
        {"labels": {"column": "species"}},
        "images/a/0",
    ),
}


@pytest.mark.parametrize(("rows", "fields", "where"), MISTAKES.values(), ids=MISTAKES)
def test_other_mistakes_are_named(tmp_path, rows, fields, where):
    place = source(tmp_path, samples={"annotations": {"files": "t.jsonl"}})
    assert refused(place, {**IMAGES, "t.jsonl": as_lines(rows)}, **fields).where == where


@pytest.mark.parametrize("objects", [{}, {"no.jsonl": b"[1]\n"}], ids=["missing", "invalid"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, objects):
    place = source(tmp_path, samples={"annotations": {"files": "no.jsonl"}})
    assert refused(place, {**IMAGES, **objects}).code == "config.annotations"


def test_a_plan_writes_nothing_and_the_file_is_read_once(tmp_path):
    lab = source(tmp_path, samples={"annotations": {"files": "table.jsonl"}})
    write(str(lab.source), {**IMAGES, "table.jsonl": FILES["table.jsonl"]})
    lab.plan()
    assert not Path(str(lab.storage)).exists()
    prepare(lab, {**IMAGES, "table.jsonl": FILES["table.jsonl"]})
    with opened(f"{lab.storage}/larder/d/work/derived") as store:
        kept = [info.key for page in store.list() for info in page]
    assert sorted(key.partition(".")[2] for key in kept) == ["jsonl", "jsonl.parquet"]
    document = lab.prepare(shards={"bytes": 9_000})
    assert document["status"] == "built"
    lab.check()


REVIEWS = [
    {
        "id": f"r{at}",
        "text": f"it was {'good' if at % 3 else 'bad'}, {at}",
        "stars": at % 3,
        "mood": mood,
    }
    for at, mood in enumerate(["glad", "sad", "glad", "so-so", "sad", "glad"])
]


@pytest.mark.push
def test_rows_have_their_class_in_a_column(tmp_path):
    name = "reviews.jsonl"
    place = {"url": str(tmp_path / "source"), "rows": {"key": "id"}}
    splits = {"by": "hash", "seed": 1, "fractions": {"train": 0.5, "test": 0.5}, "stratify": True}
    fields = {"labels": {"column": "mood"}, "splits": splits}
    write(place["url"], {name: as_lines(REVIEWS)})
    lab = Lab(place, str(tmp_path / "local"), tmp_path / "out", fields)
    lab.prepare()
    published = lab.only()
    assert published.version.classes == ("glad", "sad", "so-so")
    found = parts(published)
    for row in REVIEWS:
        own = found[f"{name}/{row['id']}"]
        assert published.version.classes[int(own["cls"])] == row["mood"]
        assert json.loads(own["json"])["text"] == row["text"]
    write(place["url"], {name: as_lines([*REVIEWS, {**REVIEWS[0], "id": "r9", "mood": "new"}])})
    document = lab.prepare()
    assert document["segments"] == {"total": 2, "new": 1, "omitted": 0}
    lab.check()


@pytest.mark.parametrize("mood", [{}, {"mood": None}, {"mood": True}, {"mood": [1]}], ids=str)
def test_a_row_without_a_class_is_named(tmp_path, mood):
    place = {"url": str(tmp_path / "source"), "rows": {"key": "id"}}
    write(place["url"], {"t.jsonl": as_lines([*REVIEWS, {"id": "x", **mood}])})
    lab = Lab(place, str(tmp_path / "local"), tmp_path / "out", {"labels": {"column": "mood"}})
    with pytest.raises(LarderError) as caught:
        lab.prepare()
    told = [*getattr(getattr(caught.value, "report", None), "failures", ()), caught.value]
    assert any("t.jsonl/x" in str(each) for each in told), told
