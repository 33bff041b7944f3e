"""The names of the mirror's task runs."""

import pytest

from larder.pipeline.job import RowRange


@pytest.mark.parametrize(
    ("first_row", "rows", "name"),
    [
        (0, 2000, "mirror objects 1 to 2,000"),
        (2000, 411, "mirror objects 2,001 to 2,411"),
        (7, 1, "mirror object 8"),
    ],
)
def test_a_batch_is_named_by_its_objects_counted_from_one(
    first_row: int, rows: int, name: str
) -> None:
    from tasks.mirror import batch_name  # imports Prefect, which takes seconds

    assert batch_name({"job": None, "batch": RowRange(first_row, rows, bytes=1)}) == name
