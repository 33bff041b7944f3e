"""The objects that samples are read from, and what a record says of their copies."""

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from larder.manifest.manifest_files import write_manifest
from larder.manifest.schemas import OBJECTS, SAMPLE_ORDER
from larder.samples.sample_order import objects_of
from larder.segments.mirror import copies_of

PACKED = {"shard": "x", "offset": 0, "length": 1, "parts": []}
CUTS = st.integers(0, 6)
KEYS = [f"{key}.{ext}" for key in "cab" for ext in "zx"]
RECORD = st.dictionaries(
    st.sampled_from(KEYS),
    st.tuples(st.sampled_from(["e", "old"]), st.sampled_from(["e", "m"]), st.none() | st.just("c")),
)


def row(key: str, *exts: str, **more: Any) -> dict[str, Any]:
    parts = [{"ext": ext, "key": f"{key}.{ext}", "size_bytes": 1, "etag": "e"} for ext in exts]
    return {"split": "train", "key": key, "parts": parts, **more}


def cut(rows: list[dict[str, Any]], at: int) -> list[pa.RecordBatch]:
    batch = pa.RecordBatch.from_pylist(rows, schema=SAMPLE_ORDER)
    return [batch.slice(0, at), batch.slice(at)]


def test_neither_packed_nor_bad_samples_nor_entries_of_annotations_are_read_from_objects(tmp_path):
    rows = [row("a", "x", "y"), row("b", "x", packed=PACKED), row("c", "x", bad="no")]
    rows += [row("d", "x", "y"), row("e", "x", split="")]
    rows[3]["parts"][0]["etag"] = "@0+9=own.tar"
    order = write_manifest(tmp_path / "order", SAMPLE_ORDER, cut(rows, 2)).path
    for count, read in {None: ["a.x", "a.y", "d.y", "e.x"], 4: ["a.x", "a.y", "d.y"]}.items():
        assert pa.Table.from_batches(objects_of(order, count)).column("key").to_pylist() == read


@given(RECORD, CUTS)
def test_every_part_has_what_the_record_says_of_this_state_of_its_object(record, at):
    order = cut([row("c", "x", "z"), row("a", "z", "x"), row("b", "z")], at)
    rows = [
        {"key": key, "size_bytes": 1, "etag": etag, "modified": 0, "mirror_etag": copy}
        | {"checksum": checksum}
        for key, (etag, copy, checksum) in sorted(record.items())
    ]
    known = pa.RecordBatch.from_pylist(rows, schema=OBJECTS)
    with tempfile.TemporaryDirectory() as folder:
        copies = [
            [tuple(part.values()) for part in each["copies"]]
            for batch in copies_of(order, [known], Path(folder))
            for each in batch.to_pylist()
        ]

    def expected(key: str) -> tuple[str | None, str | None]:
        etag, copy, checksum = record.get(key, ("", "", None))
        return (copy if copy != "e" else None, checksum) if etag == "e" else (None, None)

    keys = [["c.x", "c.z"], ["a.z", "a.x"], ["b.z"]]
    assert copies == [list(map(expected, each)) for each in keys]
