"""Containers and their indexes: what derived objects are in an object, and where.

An index is a Parquet file in the storage. It is named by what it was made from (the container's
key, size and etag, and the options), so that it is read again instead of the container, for as long
as that has not changed.

What is not a range of an object in the source, such as a row of a Parquet file, is written into a
container of Larder's own beside the index. Its name follows from the same, so it can be streamed
into the storage. The index is written last: where there is one, the container is complete.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import google_crc32c
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from larder.disk import disk_errors
from larder.errors import DamageError, LarderError, NotFoundError
from larder.manifest.digest import canonical_json, format_crc32c, sha256_hex
from larder.manifest.extent_columns import extent_etags
from larder.manifest.files import ManifestWriter, read_manifest
from larder.manifest.schemas import OBJECTS, table
from larder.progress import NullProgress, Progress
from larder.store.base import ObjectInfo, Readable, Store, Writer

INDEX = table(
    name="string",
    offset="int64",
    size_bytes="int64",
    checksum="string?",
    problem="string?",
    label="string?",
)
"""One row per derived object of a container, in any order.

``name`` is what follows the container's key and a slash, or the whole key: who made the index knows
which. ``checksum``, if known, is ``crc32c:`` and eight hex digits. ``problem``, if there is one, is
a clause that says why no object can have this name. ``label``, if there is one, is the class that a
column of the table gives the sample.
"""

_GROUP_ROWS = 16_384

_VERSION = 1
"""Version of the indexes, and of the containers of Larder's own."""


def container_name(suffix: str, *made_from: Any) -> str:
    """The name of a container of Larder's own, or of an index, from all that it is made from."""
    return f"{sha256_hex(canonical_json([_VERSION, *made_from]))[:32]}.{suffix}"


def identity(container: ObjectInfo) -> list[Any]:
    """What tells a container from others, and from itself changed: without an etag, its time."""
    state = container.etag or container.modified_us
    return [container.key, container.size_bytes, state]


def _index_key(name: str) -> str:
    return f"{name}.parquet"


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes and the containers of a dataset.

    Attributes:
        store: Where they are, in the storage.
        plan_only: Whether nothing may be written there.
        kept: Where plans keep new indexes on this machine, for the run that follows; not those of
            containers of Larder's own.
        progress: Gets the number of derived objects, as its stage ``expand``.
    """

    store: Store
    plan_only: bool = False
    kept: Store | None = None
    progress: Progress = field(default_factory=NullProgress)

    def fetch(self, name: str, path: Path, *, rewritten: bool = False) -> bool:
        """Copy an index into a local file, if it is whole; ``rewritten`` needs its container too.

        One that a plan has kept goes to the storage, which is its place, as soon as that may be.
        """
        if _fetched(self.store, name, path, rewritten=rewritten):
            return True
        fetched = False
        if self.kept and not rewritten:
            with suppress(LarderError):
                fetched = _fetched(self.kept, name, path)
            if fetched and not self.plan_only:
                self.store.upload(_index_key(name), path)
                with suppress(LarderError):
                    self.kept.delete(_index_key(name))
        return fetched

    @contextmanager
    def writer(
        self, name: str, path: Path, *, rewritten: bool = False
    ) -> Iterator[ContainerWriter]:
        """Write an index and its container; both are where they belong when the block ends without
        an error. A plan writes only the index.
        """
        with ExitStack() as stack:

            def opened() -> Writer:
                return stack.enter_context(self.store.writer(name))

            with ManifestWriter(path, INDEX, row_group_rows=_GROUP_ROWS) as index:
                writer = ContainerWriter(index, None if self.plan_only else opened, self.progress)
                yield writer
                writer.commit()
        if not self.plan_only:
            self.store.upload(_index_key(name), path)
        elif self.kept and not rewritten:
            with suppress(LarderError):  # as far as there is room
                self.kept.upload(_index_key(name), path)


def _fetched(store: Readable, name: str, path: Path, *, rewritten: bool = False) -> bool:
    try:
        with store.open(_index_key(name)) as reader, disk_errors(path), path.open("wb") as file:
            for buffer in reader:
                file.write(buffer)
        end = max((_end(batch) for batch in read_manifest(path, INDEX)), default=0)
        return not (rewritten and end and store.head(name).size_bytes < end)
    except (NotFoundError, DamageError):
        return False


def _end(batch: pa.RecordBatch) -> int:
    """Where the last derived object of a batch ends."""
    ends = pc.add(batch.column("offset"), batch.column("size_bytes"))
    return int(pc.max(ends).as_py() or 0)


class ContainerWriter:
    """Writes an index, and with it perhaps a container of Larder's own, of so many ``bytes`` so
    far; from `Indexes.writer`.
    """

    def __init__(
        self,
        index: ManifestWriter,
        open_container: Callable[[], Writer] | None,
        progress: Progress,
    ) -> None:
        self.bytes = 0
        self._progress = progress
        self._index = index
        self._open = open_container
        self._writer: Writer | None = None

    def add(
        self,
        names: pa.Array,
        contents: pa.Array,
        *,
        problems: pa.Array | None = None,
        labels: pa.Array | None = None,
    ) -> None:
        """Append derived objects to the container, each followed by a newline."""
        values = contents.cast(pa.large_binary()).to_numpy(zero_copy_only=False).tolist()
        sizes = np.fromiter(map(len, values), np.int64, len(values))
        offsets = self.bytes + np.cumsum(sizes + 1) - sizes - 1
        checksums = [format_crc32c(google_crc32c.value(value)) for value in values]
        self._write(b"\n".join([*values, b""]))
        sums = pa.array(checksums, pa.string())
        self.add_ranges(names, pa.array(offsets), pa.array(sizes), sums, problems, labels)

    def add_ranges(
        self,
        names: pa.Array,
        offsets: pa.Array,
        sizes: pa.Array,
        checksums: pa.Array | None = None,
        problems: pa.Array | None = None,
        labels: pa.Array | None = None,
    ) -> None:
        nulls = pa.nulls(len(names), pa.string())
        columns = [names, offsets, sizes]
        columns += [nulls if column is None else column for column in (checksums, problems, labels)]
        self._index.append_batch(pa.RecordBatch.from_arrays(columns, schema=INDEX))
        self._progress.advance("expand", objects=len(names))

    def _write(self, data: bytes) -> None:
        if self._open is not None:
            self._writer = self._writer or self._open()
            self._writer.write(data)
        self.bytes += len(data)

    def commit(self) -> None:
        if self._writer is not None:
            self._writer.commit()


def objects_in(
    batches: Iterable[pa.RecordBatch], end: str, modified_us: int, *, prefix: str = ""
) -> Iterator[pa.RecordBatch]:
    """The objects that an index lists, as rows of schema OBJECTS in its order, without those that
    have a problem.

    Their etags end in ``end``, from `larder.manifest.extents`; ``prefix`` precedes the names in the
    keys.
    """
    for batch in batches:
        rows = batch.filter(batch.column("problem").is_null())
        count = rows.num_rows
        columns = {
            "key": pc.binary_join_element_wise(prefix, rows.column("name"), ""),
            "size_bytes": rows.column("size_bytes"),
            "etag": extent_etags(rows.column("offset"), rows.column("size_bytes"), end),
            "modified": pa.repeat(pa.scalar(modified_us, OBJECTS.field("modified").type), count),
            "checksum": rows.column("checksum"),
        }
        arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in OBJECTS]
        yield pa.RecordBatch.from_arrays(arrays, schema=OBJECTS)
