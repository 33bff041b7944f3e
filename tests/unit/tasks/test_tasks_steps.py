"""The names of task runs."""

import inspect
from string import Formatter

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


def test_names_are_made_of_parameters() -> None:
    from tasks.steps import STEPS, TASKS

    for step in STEPS:
        names = inspect.signature(TASKS[step.function].fn).parameters.keys()
        assert "progress" not in names
        if isinstance(step.run_name, str):
            fields = [field for _, field, _, _ in Formatter().parse(step.run_name) if field]
            assert {field.partition(".")[0].partition("[")[0] for field in fields} <= names
