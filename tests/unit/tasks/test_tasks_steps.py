"""The names of task runs."""

import pytest

from larder.pipeline.job import CopyBatch


@pytest.mark.parametrize(
    ("first_row", "rows", "name"),
    [
        (0, 2000, "mirror samples 1 to 2,000"),
        (2000, 411, "mirror samples 2,001 to 2,411"),
        (7, 1, "mirror sample 8"),
    ],
)
def test_a_batch_is_named_by_its_samples_counted_from_one(
    first_row: int, rows: int, name: str
) -> None:
    from tasks.steps import _rows  # imports Prefect, which takes seconds

    batch = CopyBatch(first_row, rows, objects=1, bytes=1)
    assert _rows("mirror sample")({"job": None, "batch": batch}) == name
