"""What a run leaves on its page in Prefect: tables that people look at."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict

from httpx import HTTPError  # Prefect's
from prefect.artifacts import create_markdown_artifact, create_table_artifact

from larder.errors import printable
from larder.pipeline.results import BatchReport

__all__ = ["FAILURES", "failures_table", "summary"]

FAILURES = "failures"
"""Key of the table of failures; Prefect keeps the tables of earlier runs under it."""


def failures_table(report: BatchReport) -> None:
    """Make a table of the objects or samples that failed: the first 1,000.

    A server that does not take it does not hide why the run failed.

    Args:
        report: What was done, and what failed.
    """
    if not report.failures:
        return
    rows = [
        {name: printable(value) if isinstance(value, str) else value for name, value in row.items()}
        for row in map(asdict, report.failures)
    ]
    shown = f"the first {len(rows):,} of " if len(rows) < report.failed else ""
    with suppress(HTTPError):
        create_table_artifact(
            key=FAILURES, table=rows, description=f"{shown}{report.failed:,} that failed"
        )


def summary(key: str, lines: Sequence[str]) -> None:
    """Make a note with the result of a run, as the command prints it.

    Args:
        key: Its key in Prefect: that of the flow.
        lines: The lines.
    """
    text = "\n".join(printable(line) for line in lines)
    with suppress(HTTPError):
        create_markdown_artifact(key=key, markdown=f"~~~~\n{text}\n~~~~")
