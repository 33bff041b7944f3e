"""Containers and their indexes: the derived objects in an object, and their places.

An index is a Parquet file in the storage. Its name is a digest of the container's key, size and
etag, and of the options. So the index is read instead of the container until the container changes.

Some derived objects are no range of a source object, such as the rows of a Parquet file. They are
written into a container of Larder's own beside the index. The container's name is known in advance,
so it can be streamed into the storage. The index is written last: if it exists, the container is
complete.
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
from larder.manifest.extents import extent_etags
from larder.manifest.manifest_files import ManifestWriter, read_manifest
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

``name`` is the key after the container's key and a slash, or the whole key, as the writer of the
index decides. ``checksum``, if known, is ``crc32c:`` and eight hex digits. ``problem``, if any, is
a clause with the reason why no object can have this name. ``label``, if any, is the sample's class
from a column of the table.
"""

_GROUP_ROWS = 16_384

_VERSION = 1
"""Version of the indexes and of Larder's own containers."""


def container_name(suffix: str, *made_from: Any) -> str:
    """Return the name of one of Larder's own containers or of an index, from all of its inputs."""
    return f"{sha256_hex(canonical_json([_VERSION, *made_from]))[:32]}.{suffix}"


def identity(container: ObjectInfo) -> list[Any]:
    """Return the identity of a container's state: key, size, and etag or modification time."""
    state = container.etag or container.modified_us
    return [container.key, container.size_bytes, state]


def _index_key(name: str) -> str:
    return f"{name}.parquet"


@dataclass(frozen=True, slots=True)
class Indexes:
    """The indexes and the containers of a dataset.

    Attributes:
        store: Place of both, in the storage.
        plan_only: Whether ``store`` must not be written.
        kept: Place on this machine where plans keep new indexes for the next run, except
            indexes of Larder's own containers.
        progress: Gets the number of derived objects, as its stage ``expand``.
    """

    store: Store
    plan_only: bool = False
    kept: Store | None = None
    progress: Progress = field(default_factory=NullProgress)

    def fetch(self, name: str, path: Path, *, rewritten: bool = False) -> bool:
        """Copy a complete index into a local file; return whether there was one.

        With ``rewritten``, its container must be complete too. An index kept by a plan is moved to
        the storage once the storage may be written.
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
        """Write an index and its container; both are published when the block ends without an
        error. A plan writes only the index.
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
            with suppress(LarderError):  # the disk may be full
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
    """Return the end of the last derived object of a batch."""
    ends = pc.add(batch.column("offset"), batch.column("size_bytes"))
    return int(pc.max(ends).as_py() or 0)


@dataclass
class ContainerWriter:
    """Writes an index, and one of Larder's own containers if needed; made by `Indexes.writer`.
    ``size_bytes`` is the container's length so far.
    """

    _index: ManifestWriter
    _open: Callable[[], Writer] | None
    _progress: Progress
    size_bytes: int = 0
    _writer: Writer | None = None

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
        offsets = self.size_bytes + np.cumsum(sizes + 1) - sizes - 1
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
        self.size_bytes += len(data)

    def commit(self) -> None:
        if self._writer is not None:
            self._writer.commit()


def objects_in(
    batches: Iterable[pa.RecordBatch], end: str, modified_us: int, *, prefix: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield the objects of an index without a problem, as rows of schema OBJECTS in its order.

    The etags end in ``end``, from `larder.manifest.extents`. The keys are ``prefix`` and the names.
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
