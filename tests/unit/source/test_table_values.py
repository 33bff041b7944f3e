"""Values of Arrow tables: times that Python cannot hold, or only with other packages."""

import datetime
from typing import Any

import pyarrow as pa
import pytest

from larder.source.expand.row_values import json_value, table_rows, table_values

SECOND = 1_577_840_523 * 10**9
UTC = datetime.UTC
NS = pa.timestamp("ns")


@pytest.mark.parametrize(
    "column",
    [
        pa.array([SECOND + 123_456_789, None], NS),
        pa.array([-1], pa.timestamp("ns", "+05:30")),
        pa.array([3_600_000_000_001], pa.time64("ns")),
        pa.array([1_500_000_001], pa.duration("ns")),
        pa.array([[], [SECOND, SECOND + 1]], pa.list_(NS)),
        pa.array([[1, 2]], pa.list_(pa.duration("ns"), 2)),
        pa.array([None, (SECOND + 1, None)], pa.struct({"t": NS, "n": "i8"})),
        pa.array([[("a", SECOND + 1)]], pa.map_(pa.string(), NS)),
        pa.array([SECOND + 1], NS).dictionary_encode(),
    ],
)
def test_a_time_finer_than_a_microsecond_is_refused_by_its_column(column):
    with pytest.raises(ValueError, match=r"column 't' .*: round it"):
        table_values(column, "t")


def test_without_nanoseconds_values_are_those_of_python():
    when = datetime.datetime(2020, 1, 1, 1, 2, 3, 5)
    table: dict[str, Any] = {
        "us": pa.array([when, None], pa.timestamp("us")),
        "ns": pa.array([when, None], pa.timestamp("ns")),
        "zone": pa.array([when.replace(tzinfo=UTC), None], pa.timestamp("ns", "UTC")),
        "span": pa.array([datetime.timedelta(seconds=1), None], pa.duration("ns")),
        "text": ["a", None],
    }
    first, second = table_rows(pa.record_batch(table))
    assert first["us"] == first["ns"] == when
    assert first["zone"] == when.replace(tzinfo=UTC)
    assert first["span"] == datetime.timedelta(seconds=1)
    assert list(second.values()) == [None] * 5
    assert table_rows(pa.record_batch([], names=[])) == []


class PandasDuration(datetime.timedelta):
    """A duration that adds its fields as ``pandas.Timedelta`` does."""

    def total_seconds(self) -> float:
        return self.days * 86_400 + self.seconds + self.microseconds / 1_000_000


def test_a_duration_is_the_same_number_with_and_without_pandas():
    assert json_value(PandasDuration(microseconds=-3_017_660), str) == -3.01766


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**60], pa.timestamp("us")),
        pa.array([2**60], pa.timestamp("s")),
        pa.array([2**30], pa.date32()),
        pa.array([0], pa.timestamp("us", "Nowhere/X")),
        pa.array([0], pa.timestamp("ns", "Nowhere/X")),
        pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"]),
    ],
)
def test_what_python_cannot_hold_is_named(column):
    with pytest.raises(ValueError, match="column 't'"):
        table_values(column, "t")
