"""A receipt is compared with the order batch by batch, and refused as if it were one batch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from google_crc32c import value as checksum

from larder.errors import DamageError
from larder.manifest.manifest_files import write_manifest
from larder.manifest.schemas import SAMPLE_ORDER
from larder.segments.receipt_check import ORDER_COLUMNS, receipt_problem
from larder.segments.shard_receipts import FinishedShard, Receipt
from larder.shards.formats import shard_format
from larder.shards.model import ROWS, ShardPlan, WrittenFile

Place = tuple[int | None, int | None]
Row = dict[str, Any]


def sample(key: str, place: Place, part: Place | None = None, bad: str | None = None) -> Row:
    """A row of a receipt, of class 0; its part has no place of its own unless it is given."""
    offset, length = part or (None, 10)
    made = {"ext": "bin", "source": f"{key}.bin", "etag": "e", "offset": offset, "length": length}
    row = {"key": key, "offset": place[0], "length": place[1], "label": 0, "bad": bad}
    label = {"ext": "cls", "length": 1, "crc32c": checksum(b"0")}
    return {**row, "parts": [{**made, "crc32c": 0}, *([] if bad else [label])]}


def order(keys: Sequence[str]) -> list[pa.RecordBatch]:
    """The planned samples, each in a batch of its own."""
    empty = dict.fromkeys(SAMPLE_ORDER.names)
    part = {"ext": "bin", "size_bytes": 10, "etag": "e", "checksum": None}
    rows = [
        {**empty, "split": "train", "key": key, "label": 0, "parts": [part | {"key": f"{key}.bin"}]}
        for key in keys
    ]
    batches = [pa.RecordBatch.from_pylist([row], schema=SAMPLE_ORDER) for row in rows]
    return [batch.select(ORDER_COLUMNS) for batch in batches]


def problem(
    folder: Path, format_name: str, rows: list[Row], samples: int | None = None, kind: str = ""
) -> str:
    """Of a receipt with these rows, perhaps for more samples; planned are ``a`` and ``b``."""
    path = folder / "receipt.parquet"
    write_manifest(path, ROWS, [pa.RecordBatch.from_pylist(rows, schema=ROWS)])
    good = samples or sum(row["bad"] is None for row in rows)
    format_ = shard_format(format_name)
    plan = ShardPlan("train", 0, f"d-train-000000.{format_name}", 0, 2, 99)
    names = format_.file_names(plan.name) if good else ()
    files = tuple(WrittenFile(name, 99, "0" * 64, kind=kind) for name in names)
    receipt = Receipt("receipt", path, FinishedShard("train", plan.name, files, good))
    return receipt_problem(plan, order("ab"), receipt, format_, transformed=False)


def test_honest_receipts_are_accepted(tmp_path):
    assert not problem(tmp_path, "parquet", [sample("a", (0, 1)), sample("b", (1, 1))])
    assert not problem(
        tmp_path, "parquet", [sample("b", (0, 1)), sample("a", (None, None), bad="x")]
    )
    assert not problem(tmp_path, "records", [sample("a", (0, 50)), sample("b", (50, 49))])
    both = [sample(key, (None, None), bad="x") for key in "ba"]
    assert not problem(tmp_path, "parquet", both)


def test_an_index_is_no_file_of_a_shard(tmp_path):
    rows = [sample("a", (0, 1)), sample("b", (1, 1))]
    assert "another shard" in problem(tmp_path, "parquet", rows, kind="dali")


@pytest.mark.parametrize(
    ("format_name", "places"),
    [
        ("parquet", [(7, 1), (8, 1)]),
        ("parquet", [(0, 1), (9, 1)]),
        ("records", [(0, 50), (50, 1)]),
        ("records", [(0, 40), (50, 49)]),
    ],
)
def test_a_gap_between_batches_is_found(tmp_path, format_name, places):
    rows = [sample(key, place) for key, place in zip("ab", places, strict=True)]
    assert problem(tmp_path, format_name, rows)


def test_parts_of_two_batches_that_overlap_are_found(tmp_path):
    apart = [sample("a", (0, 1), (50, 10)), sample("b", (1, 1), (40, 10))]
    assert not problem(tmp_path, "parquet", apart)
    over = [sample("a", (0, 1), (50, 10)), sample("b", (1, 1), (41, 10))]
    assert "overlap" in problem(tmp_path, "parquet", over)


def test_other_samples_are_found_where_all_or_some_are_bad(tmp_path):
    bad = {key: sample(key, (None, None), bad="x") for key in "abc"}
    for rows in ([bad["a"], bad["c"]], [sample("a", (0, 1)), bad["c"]], [bad["a"], bad["a"]]):
        assert "not those that are planned" in problem(tmp_path, "parquet", rows)
    assert problem(tmp_path, "parquet", [bad["a"], sample("b", (0, 1))]), "bad ones are last"
    assert problem(tmp_path, "parquet", [sample("a", (0, 1)), bad["b"]], 2), "it was counted"


ALTERATIONS: dict[str, Callable[[list[Row]], Any]] = {
    "a row less": lambda rows: rows.pop(),
    "a row twice": lambda rows: rows.append(rows[-1]),
    "rows exchanged": lambda rows: rows.reverse(),
    "another key": lambda rows: rows[0].update(key="zzz"),
    "another label": lambda rows: rows[0].update(label=1),
    "another label, with its checksum": lambda rows: rows[0].update(
        label=1, parts=[rows[0]["parts"][0], {**rows[0]["parts"][1], "crc32c": checksum(b"1")}]
    ),
    "moved": lambda rows: rows[0].update(offset=4),
    "longer": lambda rows: rows[1].update(length=5),
    "a part less": lambda rows: rows[0]["parts"].pop(0),
    "an empty part": lambda rows: rows[0]["parts"][0].update(length=0),
    "a part that is cut": lambda rows: rows[0]["parts"][0].update(length=9),
    "another extension": lambda rows: rows[0]["parts"][0].update(ext="exe"),
    "another source": lambda rows: rows[0]["parts"][0].update(source="other.bin"),
    "another etag": lambda rows: rows[0]["parts"][0].update(etag="other"),
    "the checksum of a label": lambda rows: rows[0]["parts"][1].update(crc32c=7),
}


@pytest.mark.parametrize("what", ALTERATIONS)
def test_any_alteration_is_found(tmp_path, what):
    rows = [sample("a", (0, 1)), sample("b", (1, 1))]
    ALTERATIONS[what](rows)
    for samples in (None, min(2, len(rows))):
        assert problem(tmp_path, "parquet", rows, samples)


@pytest.mark.parametrize("place", [(None, 1), (0, None)])
def test_a_sample_without_a_place_is_damage(tmp_path, place):
    with pytest.raises(DamageError, match="lacks its place") as caught:
        problem(tmp_path, "parquet", [sample("a", place), sample("b", (1, 1))])
    assert caught.value.code == "damage.manifest"
