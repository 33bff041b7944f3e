"""Complete runs with image records of RecordIO: built, grown, cached and read."""

from pathlib import Path
from typing import Any

import pytest
from pipeline_lab import Lab, directory_lab, images, png, shard_names, write

import larder
from larder.shards.formats.recordio import IMAGE_HEADER, record_data

pytestmark = pytest.mark.push

OBJECTS = {key: data for key, data in images(each=6).items() if key.endswith(".png")}
FIELDS: dict[str, Any] = {
    "splits": {"validation": "c/**", "train": "**"},
    "shards": {"format": "recordio", "bytes": 2_000},
    "cluster": {"runner": {"workers": 1}},
}
Record = tuple[float, str, bytes]
"""Label, name and content."""


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    return directory_lab(tmp_path, OBJECTS, **FIELDS)


def shards(lab: Lab) -> list[Path]:
    data = larder.open(f"{lab.storage}/larder/d@latest")
    return [Path(path) for split in data.splits for path in data.shards(split)]


def records(lab: Lab) -> dict[int, Record]:
    """All records by their number, read as the files of text say."""
    found: dict[int, Record] = {}
    for path in shards(lab):
        data = path.read_bytes()
        places = [line.split("\t") for line in path.with_suffix(".idx").read_text().splitlines()]
        named = [line.split("\t") for line in path.with_suffix(".lst").read_text().splitlines()]
        assert [place[0] for place in places] == [name[0] for name in named]
        ends = [*(int(place[1]) for place in places[1:]), len(data)]
        for (number, start), (_, label, name), end in zip(places, named, ends, strict=True):
            record = b"".join(record_data(data[int(start) : end]))
            header = IMAGE_HEADER.unpack_from(record)
            assert header == (0, float(label), int(number), 0)
            assert int(number) not in found
            found[int(number)] = float(label), name, record[IMAGE_HEADER.size :]
    return found


def expected(objects: dict[str, bytes]) -> list[Record]:
    return sorted(("abcd".index(key[0]), key, data) for key, data in objects.items())


def test_numbers_are_unique_however_a_dataset_grows(lab):
    """Bad samples have numbers, too, which are not given again."""
    bad = {"a/06.png": b"no image" * 40, "c/06.png": b"no image" * 40}
    write(lab.source, bad)
    lab.prepare(on_bad_sample="skip")
    assert sorted(records(lab).values()) == expected(OBJECTS)
    now = dict(OBJECTS)
    for round_, (changed, removed) in enumerate([("d/00", "b/03"), ("a/00", "c/01"), ("c/09", "")]):
        now[f"{changed}.png"] = png(900 + round_)
        write(lab.source, {f"{changed}.png": now[f"{changed}.png"]})
        if removed:
            del now[f"{removed}.png"]
            Path(str(lab.source), f"{removed}.png").unlink()
        document = lab.prepare(on_bad_sample="skip")
        assert document["status"] == "built"
        assert sorted(records(lab).values()) == expected(now)
    assert document["segments"]["total"] > 1
    lab.check()


def test_a_compacted_dataset_counts_from_0_again(lab, tmp_path):
    lab.prepare()
    now = OBJECTS | {"a/06.png": png(906), "b/09.png": png(909)}
    write(lab.source, now)
    assert lab.prepare()["segments"]["total"] == 2
    assert sorted(records(lab)) == list(range(len(now)))
    lab.compact()
    again = directory_lab(tmp_path / "again", now, **FIELDS)
    again.prepare()
    assert records(lab) == records(again)
    assert shard_names(lab.newest()) == shard_names(again.only())
