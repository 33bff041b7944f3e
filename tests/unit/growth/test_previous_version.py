"""The samples of a previous version are read only if its documents and manifests agree."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from larder.growth.previous import PreviousSegment, read_previous
from larder.jobs.manifests import put_named
from larder.manifest.manifest_files import write_manifest
from larder.manifest.schemas import SOURCES
from larder.manifest.sealed import StoredFile
from larder.segments.index_writer import IndexWriter
from larder.shards.model import ROWS
from larder.store import open_store
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    SegmentDocument,
    SegmentSplit,
    SegmentUse,
    Shape,
    VersionDocument,
)
from larder.versions.index import Shard
from larder.versions.omitted import Omitted
from larder.versions.publish import publish_document
from tests.support.errors import larder_error

SEGMENT = "5" * 32
SHAPE = Shape("webdataset", 1, 1, {}, None)
PART = {"ext": "jpg", "source": "x.jpg", "etag": "e", "offset": 0, "length": 1, "crc32c": 0}


def samples(count: int, schema: pa.Schema) -> pa.RecordBatch:
    rows = [{"key": f"k{n}", "offset": n, "length": 1, "parts": [PART]} for n in range(count)]
    return pa.RecordBatch.from_pylist(rows, schema)


def version(root: Store, folder: Path, indexed: int, sources: int) -> VersionDocument:
    """A version of one segment, of two samples by its document."""
    shard = StoredFile(layout.shard_key(SEGMENT, "train", "d.tar"), 9, "0" * 64, "shard")
    with IndexWriter(folder) as writer:
        if indexed:
            writer.append("d.tar", samples(indexed, ROWS))
            writer.add_shard(Shard(SEGMENT, "train", 0, indexed, 0, (shard,)))
        files = {"rows": writer.finish()}
    rows = [samples(sources, SOURCES)]
    files["sources"] = write_manifest(folder / "sources", SOURCES, rows)
    stored = tuple(
        put_named(root, layout.index_key(SEGMENT, role, file.sha256), file, role)
        for role, file in files.items()
    )
    splits = {"train": SegmentSplit(2, 1, 9, 0, 0, 1)}
    publish_document(root, SegmentDocument("d", SEGMENT, SHAPE, "header", splits, stored))
    uses = (SegmentUse(SEGMENT),)
    return VersionDocument("d", "1" * 32, "", "", uses, {}, (), stored, None)


def test_samples_have_the_split_and_the_shard_of_their_rows(tmp_path):
    root = open_store(str(tmp_path / "root"))
    (batch,) = read_previous(root, version(root, tmp_path, 2, 2)).samples().batches
    rows = [(row["key"], row["split"], row["shard_number"]) for row in batch.to_pylist()]
    assert rows == [("k0", "train", 0), ("k1", "train", 0)]


@pytest.mark.parametrize(("indexed", "sources"), [(3, 2), (0, 2), (2, 3), (2, 1), (2, 0)])
def test_another_number_of_samples_is_damage(tmp_path, indexed, sources):
    root = open_store(str(tmp_path / "root"))
    made = version(root, tmp_path, indexed, sources)
    with larder_error("damage.manifest"):
        list(read_previous(root, made).samples().batches)


def test_omitted_rows_count_in_the_shards_that_have_them():
    places = (("a", 0), ("a", 5), ("b", 10), ("b", 15))
    shards = [Shard(SEGMENT, split, first_row, 5, 0, ()) for split, first_row in places]
    splits = {"a": SegmentSplit(10, 2, 9, 0, 0, 2), "b": SegmentSplit(10, 2, 9, 10, 0, 2)}
    document = SegmentDocument("d", SEGMENT, SHAPE, "header", splits, ())
    omitted = {"b": Omitted(np.array([[3, 7], [9, 10]]))}
    assert PreviousSegment(document, omitted, shards).before.tolist() == [5, 5, 3, 2]
