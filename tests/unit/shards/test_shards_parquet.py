import base64
import io
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from image_files import saved
from PIL import Image
from required import read_by_others

from larder.config.shape import FormatOptions, Layout
from larder.errors import ConfigError
from larder.shards.formats import parquet
from larder.shards.formats.parquet import ParquetFormat
from larder.shards.hashed_output import HashedOutput
from larder.shards.model import Part, PlannedSample, ShardResult
from larder.shards.reading.fetch import Body
from larder.store import Store
from tests.support.errors import larder_error
from tests.support.packing import indexed, pack, planned, surveyed
from tests.support.sample_orders import Content, order_samples

CONTENTS = [
    Content("a/1", {"jpg": b"\xff\xd8", "txt": b"one"}, 3),
    Content("a/2", {"jpg": b"", "seg.png": b"mask"}, None),
    Content("höhe/漢字", {"txt": b"\0\xff"}, 2**31 - 1),
]


def write(
    store: Store, contents: list[Content], target_bytes: int = 10**9, before: Layout | None = None
) -> list[ShardResult]:
    batch = order_samples(store, contents)
    format_ = surveyed("parquet", [batch], before)
    return pack(batch, store, format_, planned(batch, format_, target_bytes))


def rows(store: Store, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = pq.read_table(io.BytesIO(store.get(name))).to_pylist()
    return found


def test_a_sample_is_a_row(store):
    (shard,) = write(store, CONTENTS)
    assert shard.name == "d-train-00000-of-00001.parquet"
    lacking = {"jpg": None, "seg.png": None, "txt": None}
    assert rows(store, shard.name) == [
        {"key": content.key, "label": content.label, **lacking, **content.parts}
        for content in CONTENTS
    ]
    schema = pq.read_schema(io.BytesIO(store.get(shard.name)))
    assert schema.names == ["key", "label", "jpg", "seg.png", "txt"]
    assert schema.field("label").type == pa.int64()
    assert schema.field("jpg").type == pa.binary()


def test_a_dataset_without_labels_has_no_such_column(store):
    (shard,) = write(store, [Content("a", {"label": b"a part of this name", "cls": b"own"})])
    assert rows(store, shard.name) == [{"key": "a", "cls": b"own", "label": b"a part of this name"}]


def test_all_shards_of_a_segment_have_the_same_columns(store, tmp_path):
    """As readers of several files expect: DuckDB is one that has a Parquet reader of its own."""
    shards = write(store, CONTENTS, 1)
    assert len(shards) == 3
    for shard in shards:
        (tmp_path / shard.name).write_bytes(store.get(shard.name))
    with duckdb.connect() as connection:
        found = connection.sql(f"""SELECT key, label, "seg.png", txt FROM '{tmp_path}/*.parquet'""")
        assert found.fetchall() == [
            ("a/1", 3, None, b"one"),
            ("a/2", None, b"mask", None),
            ("höhe/漢字", 2**31 - 1, None, b"\0\xff"),
        ]


def test_the_columns_of_the_segments_before_are_kept(store):
    before = Layout({"wav": None}, labelled=True)
    (shard,) = write(store, [Content("a", {"txt": b"1"})], before=before)
    assert rows(store, shard.name) == [{"key": "a", "label": None, "txt": b"1", "wav": None}]


@pytest.mark.parametrize(("ext", "label"), [("key", None), ("label", 1)])
def test_a_part_cannot_be_called_as_another_column(store, ext, label):
    with pytest.raises(ConfigError):
        write(store, [Content("a", {ext: b"1"}, label)])


def test_a_part_that_no_page_can_hold_is_refused_by_name(store):
    batch = order_samples(store, CONTENTS)
    rows = batch.to_pylist()
    rows[1]["parts"][1]["size_bytes"] = 2**31
    batch = pa.RecordBatch.from_pylist(rows, schema=batch.schema)
    with larder_error("config.invalid_value", rows[1]["parts"][1]["key"]):
        ParquetFormat(FormatOptions()).sample_sizes(batch)


def test_row_groups_are_what_a_reader_can_hold(store, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    sizes = [4_000, 6_000, 1, 30_000, 9_999, 1, 1, 500]
    contents = [Content(f"{n}", {"bin": bytes(size)}, n) for n, size in enumerate(sizes)]
    (shard,) = write(store, contents)
    file = pq.ParquetFile(io.BytesIO(store.get(shard.name)))
    groups = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert groups == [2, 1, 1, 2, 2]
    assert [len(row["bin"]) for row in rows(store, shard.name)] == sizes


def test_many_small_samples_of_a_row_group_are_held_as_columns(store, monkeypatch):
    """Its bytes are the same as if all had been held until it is full."""
    contents = [
        Content(f"{n}", {"bin": bytes([n % 251]) * (n % 9), **({"txt": b"t"} if n % 3 else {})}, n)
        for n in range(70)
    ]
    digests = []
    for samples in (10**9, 30, 1):
        monkeypatch.setattr(parquet, "_PACKED_SAMPLES", samples)
        (shard,) = write(store, contents)
        digests.append(shard.files[0].sha256)
    assert len(set(digests)) == 1
    assert [len(row["bin"]) for row in rows(store, shard.name)] == [n % 9 for n in range(70)]


def test_a_large_sample_is_written_before_the_next_one_is_read(store, monkeypatch):
    monkeypatch.setattr(parquet, "ROW_GROUP_BYTES", 10_000)
    with store.writer("x") as target, HashedOutput(target) as output:
        rows = parquet.ParquetRows(output, Layout({"bin": None}, labelled=False))
        for size_bytes in (100, 20_000, 100, 30_000):
            before = output.bytes
            sample = PlannedSample("train", "k", None, (Part("bin", "k", size_bytes, ""),))
            rows.append(sample, [Body(bytes(size_bytes), 0)])
            assert (output.bytes > before + size_bytes) == (size_bytes > 10_000)
        assert rows.finish().num_rows == 4


def test_a_large_sample_that_was_read_is_not_kept(store):
    """Growth keeps some shards open that it packs samples of again."""
    size_bytes = parquet.ROW_GROUP_BYTES + 1
    (shard,) = write(store, [Content(f"{n}", {"bin": bytes(size_bytes)}) for n in range(2)])
    samples = indexed(shard)
    with ParquetFormat(FormatOptions()).open(store, shard.name) as reader:
        before = pa.total_allocated_bytes()
        for sample in samples:
            assert len(reader.read(sample)["bin"]) == size_bytes
        assert pa.total_allocated_bytes() - before < size_bytes


HUGGING_FACE = """
import base64, io, json, sys
import datasets

given = json.load(sys.stdin)
loaded = datasets.load_dataset(
    "parquet", data_files=given["shards"], cache_dir=given["folder"] + "/cache"
)["train"]
plain = lambda value: base64.b64encode(value).decode() if isinstance(value, bytes) else value
rows = [{name: plain(value) for name, value in row.items()} for row in loaded]
stream = datasets.load_dataset("parquet", data_files=given["images"], streaming=True)["train"]
first, second = stream.cast_column("png", datasets.Image())
image = first["png"]
print(json.dumps({"rows": rows, "size": image.size, "pixel": image.getpixel((0, 0)),
                  "second": second["png"]}))
"""


def test_hugging_face_loads_rows_and_decodes_images(store, tmp_path):
    image = saved(Image.new("RGB", (3, 2), (255, 0, 7)))
    images = [Content("i", {"png": image}, 1), Content("j", {"x": b""}, 2)]
    given: dict[str, Any] = {"folder": str(tmp_path)}
    for name, contents in (("shards", CONTENTS), ("images", images)):
        given[name] = []
        for shard in write(store, contents, 1 if name == "shards" else 10**9):
            path = tmp_path / f"{name}-{shard.name}"
            path.write_bytes(store.get(shard.name))
            given[name].append(str(path))
    found = read_by_others(HUGGING_FACE, given)
    lacking = {"jpg": None, "seg.png": None, "txt": None}
    assert found["rows"] == [
        {"key": content.key, "label": content.label, **lacking}
        | {ext: base64.b64encode(data).decode() for ext, data in content.parts.items()}
        for content in CONTENTS
    ]
    assert (found["size"], found["pixel"], found["second"]) == ([3, 2], [255, 0, 7], None)
