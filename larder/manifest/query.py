"""Joins and sorts of manifests: one SQL statement over streams of rows, in bounded memory.

DuckDB runs the statement in the caller's thread, and spills to a private folder. Strings are
compared by their UTF-8 bytes. A statement reads only the given rows: no files, no network, no
extensions. Joins are executed as written: DuckDB keeps the right side, and streams the left side.
So put the side with fewer or shorter rows on the right.
"""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from larder.bounds import TABLES_BYTES
from larder.disk import disk_errors
from larder.errors import ConfigError, FatalError, StoreError
from larder.manifest.manifest_files import BATCH_ROWS
from larder.units import format_bytes

if TYPE_CHECKING:
    import duckdb

_FULL = ("No space left on device", "Disk quota exceeded", "max_temp_directory_size")

_Batches = Generator[pa.RecordBatch]


class Stream(NamedTuple):
    """An input of a statement, which can read the stream only once."""

    schema: pa.Schema
    batches: Iterable[pa.RecordBatch]


class _Database:
    """A database without tables, made at its first use, with a folder for spilling."""

    def __init__(self, work_dir: Path, memory_bytes: int) -> None:
        self.work_dir = work_dir
        self.memory_bytes = memory_bytes
        self._lock = threading.Lock()
        self._stack = ExitStack()
        self._connection: duckdb.DuckDBPyConnection | None = None

    def connect(self) -> duckdb.DuckDBPyConnection:
        """Open a connection for one statement; all connections of a database share its memory."""
        with self._lock:
            if self._connection is None:
                with disk_errors(self.work_dir):
                    self.work_dir.mkdir(parents=True, exist_ok=True)
                    folder = tempfile.TemporaryDirectory(dir=self.work_dir, prefix="query-")
                spill = Path(self._stack.enter_context(folder)) / "spill"
                self._connection = self._stack.enter_context(closing(self._connected(spill)))
            return self._connection.cursor()

    def close(self) -> None:
        self._stack.close()

    def _connected(self, spill: Path) -> duckdb.DuckDBPyConnection:
        import duckdb  # only when needed: a run that reuses a version does not use it

        # One thread: the inputs are read in the caller's thread, and more gain almost nothing.
        connection = duckdb.connect(
            ":memory:",
            config={
                "threads": "1",
                "memory_limit": f"{self.memory_bytes}B",
                "temp_directory": str(spill),
                "autoinstall_known_extensions": "false",
                "autoload_known_extensions": "false",
                # These optimizers would guess: the length of a stream is unknown.
                "disabled_optimizers": "join_order,build_side_probe_side",
            },
        )
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return connection


_databases: dict[Path, _Database] = {}


@contextmanager
def tables_in(folder: Path, memory_bytes: int = TABLES_BYTES) -> Iterator[None]:
    """Let all statements that run in a folder or below share this memory."""
    database = _databases[folder] = _Database(folder, memory_bytes)
    try:
        yield
    finally:
        del _databases[folder]
        database.close()


@contextmanager
def _database(work_dir: Path) -> Iterator[_Database]:
    shared = (_databases[each] for each in (work_dir, *work_dir.parents) if each in _databases)
    database = next(shared, None)
    if database is not None:
        yield database
        return
    with closing(_Database(work_dir, TABLES_BYTES)) as database:
        yield database


def query(
    statement: str, inputs: Mapping[str, Stream], schema: pa.Schema, *, work_dir: Path
) -> _Batches:
    """Run one statement, starting when the first batch is requested.

    The ``SELECT`` has the columns of ``schema``, in order. If the order of the rows matters, use a
    total ``ORDER BY``, or `larder.manifest.sort.sorted_query`. Memory is the limit of `tables_in`
    and a few batches; beyond the limit, the disk is used. Nothing remains in ``work_dir``.

    Raises:
        StoreError: ``store.full``: no space is left in ``work_dir``.
        ConfigError: ``config.invalid_value``: the memory does not suffice, even with the disk.
        FatalError: ``run.internal``: DuckDB cannot run the statement, or its result is not of
            ``schema``.
        LarderError: Any error of reading an input.
    """
    with ExitStack() as stack:
        database = stack.enter_context(_database(work_dir))
        read = _Inputs()
        stack.enter_context(_errors(database, read))
        connection = stack.enter_context(closing(database.connect()))
        for name, rows in inputs.items():
            batches = stack.enter_context(closing(read.read(rows.batches)))
            connection.register(name, pa.RecordBatchReader.from_batches(rows.schema, batches))
        reader = connection.sql(statement).to_arrow_reader(BATCH_ROWS)
        for batch in stack.enter_context(closing(reader)):
            yield batch.cast(schema)


class _Inputs:
    """The bytes and the error of reading the inputs; DuckDB keeps only the error's text."""

    def __init__(self) -> None:
        self.size_bytes = 0
        self.error: BaseException | None = None

    def read(self, batches: Iterable[pa.RecordBatch]) -> _Batches:
        try:
            for batch in batches:
                self.size_bytes += batch.nbytes
                yield batch
        except GeneratorExit:
            raise
        except BaseException as error:
            self.error = error
            raise


@contextmanager
def _errors(database: _Database, read: _Inputs) -> Iterator[None]:
    import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, ValueError) as error:
        if read.error:
            raise read.error from None
        where, text = str(database.work_dir), str(error)
        if any(each in text for each in _FULL):
            size = format_bytes(read.size_bytes)
            message = f"no space is left on the disk; the tables need {size} at least"
            hint = "make room there, set TMPDIR to another directory, or raise memory.tables_bytes"
            raise StoreError("store.full", message, where=where, hint=hint) from error
        if isinstance(error, duckdb.OutOfMemoryException):
            message = f"{format_bytes(database.memory_bytes)} do not suffice for the tables"
            hint = "raise memory.tables_bytes in the cluster file"
            raise ConfigError("config.invalid_value", message, where=where, hint=hint) from error
        message = f"DuckDB: {text.splitlines()[0]}"
        raise FatalError("run.internal", message, where=where) from error
