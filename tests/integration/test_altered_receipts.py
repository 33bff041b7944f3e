"""Receipts of a stopped run are compared with the order of the samples before publishing."""

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from required import at_push

import larder
from larder.errors import DamageError
from larder.pipeline.prepare import prepare
from tests.support.runs import between, labelled_root

Rows = list[dict[str, Any]]


def _part(rows: Rows) -> dict[str, Any]:
    part: dict[str, Any] = next(part for part in rows[0]["parts"] if part["ext"] == "bin")
    return part


def _row_less(rows: Rows) -> None:
    del rows[-1]


def _row_twice(rows: Rows) -> None:
    rows.append(rows[-1])


def _other_key(rows: Rows) -> None:
    rows[0]["key"] = "zzz"


def _keys_exchanged(rows: Rows) -> None:
    rows[0]["key"], rows[1]["key"] = rows[1]["key"], rows[0]["key"]


def _rows_exchanged(rows: Rows) -> None:
    rows[0], rows[1] = rows[1], rows[0]


def _empty(rows: Rows) -> None:
    _part(rows)["length"] = 0


def _cut(rows: Rows) -> None:
    _part(rows)["length"] -= 1


def _other_ext(rows: Rows) -> None:
    _part(rows)["ext"] = "exe"


def _other_source(rows: Rows) -> None:
    _part(rows)["source"] = "a/other.bin"


def _other_etag(rows: Rows) -> None:
    _part(rows)["etag"] = "other"


def _other_label(rows: Rows) -> None:
    rows[0]["label"] = 1 - rows[0]["label"]


def _label_checksum(rows: Rows) -> None:
    next(part for part in rows[0]["parts"] if part["ext"] == "cls")["crc32c"] ^= 1


def _moved(rows: Rows) -> None:
    rows[0]["offset"] += 4


def _longer(rows: Rows) -> None:
    rows[-1]["length"] += 4


def _part_less(rows: Rows) -> None:
    rows[0]["parts"] = [part for part in rows[0]["parts"] if part["ext"] != "bin"]


def _left_out(rows: Rows) -> None:
    """A sample that is said to be bad after all."""
    rows[-1]["bad"] = "bad"


@pytest.fixture(scope="module", params=["webdataset", *at_push("tfrecord", "recordio")])
def stopped(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Any, Path]:
    """A run that was stopped right before it wrote segment.json."""
    folder = tmp_path_factory.mktemp(request.param)
    objects = {
        f"{'ab'[number % 2]}/{number:02}.bin": random.Random(number).randbytes(300)
        for number in range(12)
    }
    settings, root = labelled_root(folder, request.param, objects)
    _stop(root)
    return settings, root


def _stop(root: Path) -> None:
    for pattern in ("versions/*/version.json", "segments/*/segment.json", "tags/*"):
        for path in root.glob(pattern):
            path.unlink()


@pytest.mark.parametrize(
    "change",
    [
        *(_row_less, _row_twice, _other_key, _keys_exchanged, _rows_exchanged, _empty, _cut),
        *(_other_ext, _other_source, _other_etag, _other_label, _label_checksum, _moved),
        *(_longer, _part_less, _left_out),
    ],
)
def test_an_altered_receipt_is_refused_and_then_made_again(stopped, change):
    settings, root = stopped
    path = min(root.glob("segments/*/work/shards/train/*.parquet"))
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(rows)
    pq.write_table(pa.Table.from_pylist(rows, table.schema), path, write_page_checksum=True)
    with between(), pytest.raises(DamageError) as caught:
        prepare(settings)
    assert caught.value.code == "damage.manifest"
    assert caught.value.where.endswith(str(path))
    assert not list(root.glob("versions/*/version.json"))
    path.unlink()
    with between():
        prepare(settings)
    samples = list(larder.open(f"{root}@latest").samples("train"))
    assert len(samples) == 12
    for sample in samples:
        assert sample.parts["bin"] == random.Random(int(sample.key[-2:])).randbytes(300)
    _stop(root)
