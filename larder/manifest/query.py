"""Joins and sorts of manifests: one SQL statement over streams of rows, in bounded memory.

DuckDB runs it in the caller's thread and writes what does not fit into memory to a private folder.
Strings are compared by their UTF-8 bytes. A statement reads only the rows that it is given: no
files, no network, no extensions.

Where rows may be many, sort them as one stream and look at neighbours: that holds at any length. A
join, and a union of several inputs within a statement, may run out of memory however much is on the
disk; docs/design/003-manifests.md has the figures.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from larder.disk import disk_errors
from larder.errors import FatalError, StoreError
from larder.manifest.files import BATCH_ROWS

if TYPE_CHECKING:
    import duckdb

MEMORY_BYTES = 100 * 1024**2
"""Memory of a sort. Two run at the same time if one reads what the other yields."""

JOIN_BYTES = 3 * MEMORY_BYTES
"""Memory of joins of several long inputs, whose hash tables are not all written to the disk."""

_FULL = ("No space left on device", "Disk quota exceeded", "max_temp_directory_size")

_Batches = Generator[pa.RecordBatch]


class Stream(NamedTuple):
    """An input of a statement; a stream that a statement can read only once."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


def query(
    statement: str,
    inputs: Mapping[str, Stream],
    schema: pa.Schema,
    *,
    work_dir: Path,
    memory_bytes: int = MEMORY_BYTES,
) -> _Batches:
    """Run one statement, starting when the first batch is requested.

    The ``SELECT`` has the columns of ``schema``, in order; its ``ORDER BY`` must be total, so that
    every run gives the same result. A few batches come on top of ``memory_bytes``; beyond it, sorts
    use the disk, and joins need `JOIN_BYTES`. Nothing remains in ``work_dir``.

    Raises:
        StoreError: ``store.full``: no space is left in ``work_dir``.
        FatalError: ``run.internal``: DuckDB cannot run the statement, or its result is not of
            ``schema``.
        LarderError: Any error of reading an input.
    """
    with ExitStack() as stack:
        with disk_errors(work_dir):
            work_dir.mkdir(parents=True, exist_ok=True)
            folder = tempfile.TemporaryDirectory(dir=work_dir, prefix="query-")
        raised: list[BaseException] = []
        stack.enter_context(_errors(work_dir, raised))
        stack.enter_context(folder)
        connection = stack.enter_context(closing(_connect(Path(folder.name), memory_bytes)))
        for name, rows in inputs.items():
            batches = stack.enter_context(closing(_noting(rows.batches, raised)))
            connection.register(name, pa.RecordBatchReader.from_batches(rows.schema, batches))
        reader = connection.sql(statement).to_arrow_reader(BATCH_ROWS)
        for batch in stack.enter_context(closing(reader)):
            yield batch.cast(schema)


def _connect(folder: Path, memory_bytes: int) -> duckdb.DuckDBPyConnection:
    import duckdb  # only when needed: a run that reuses a version does not use it

    # One thread: the inputs are read in the caller's thread, and more gain almost nothing.
    connection = duckdb.connect(
        ":memory:",
        config={
            "threads": "1",
            "memory_limit": f"{memory_bytes}B",
            "temp_directory": str(folder / "spill"),
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        },
    )
    for setting in ("enable_progress_bar = false", "enable_external_access = false"):
        connection.execute(f"SET {setting}")
    connection.execute("SET lock_configuration = true")
    return connection


def _noting(batches: Iterable[pa.RecordBatch], raised: list[BaseException]) -> _Batches:
    """The same batches; records errors of reading them, because DuckDB only keeps their text."""
    try:
        yield from batches
    except GeneratorExit:
        raise
    except BaseException as error:
        raised.append(error)
        raise


@contextmanager
def _errors(work_dir: Path, raised: list[BaseException]) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
        if raised:
            raise raised[0] from None
        if any(text in str(error) for text in _FULL):
            message = "no space is left on the disk"
            raise StoreError("store.full", message, where=str(work_dir)) from error
        message = f"DuckDB: {str(error).splitlines()[0]}"
        raise FatalError("run.internal", message, where=str(work_dir)) from error
