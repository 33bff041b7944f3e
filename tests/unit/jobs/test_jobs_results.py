"""How a run with failed objects is reported."""

from __future__ import annotations

import pytest

from larder.errors import Failure, ObjectError
from larder.jobs.results import BatchReport, RunError


@pytest.mark.parametrize(
    ("key", "hint", "told"),
    [
        ("a/1.jpg", "fix it, or exclude it", "a/1.jpg: cannot be decoded"),
        ("a/1.jpg", "", "a/1.jpg: cannot be decoded"),
        ("odd; key.jpg", "", "odd; key.jpg: cannot be decoded"),
        ("esc\x1b.jpg", "fix it", r"esc\x1b.jpg: cannot be decoded"),
    ],
)
def test_the_error_of_a_run_has_one_hint(key: str, hint: str, told: str) -> None:
    error = ObjectError("sample.undecodable", "cannot be decoded", where=key, hint=hint)
    report = BatchReport(failed=1, failures=(Failure.of(key, error),))
    assert str(RunError("shard", report)) == (
        f"1 failed in shard, the first: {told}; "
        "nothing was published; fix or exclude them, then run again to continue"
    )
