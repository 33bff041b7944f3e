"""Lists of failures in the storage: complete, where documents have only the first ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import pyarrow as pa

from larder.errors import Failure
from larder.manifest.files import read_manifest, write_manifest
from larder.manifest.schemas import FAILURES
from larder.manifest.writer import ManifestFile, ManifestWriter
from larder.pipeline.job import ManifestRef, put_named
from larder.pipeline.manifests import read_ref
from larder.store.base import Store


def put_failures(
    root: Store, failures: Sequence[Failure], key: Callable[[str], str], folder: Path
) -> tuple[ManifestRef, ...]:
    """Write the failures of a batch, if there are any; ``key`` is given the sha256 of the list."""
    if not failures:
        return ()
    with ManifestWriter(folder / "failures.parquet", FAILURES) as writer:
        writer.append((each.key, each.code, each.message, each.attempts) for each in failures)
    return (put_named(root, key(writer.file.sha256), writer.file),)


def gather_failures(
    root: Store,
    lists: Sequence[ManifestRef],
    key: Callable[[str], str],
    folder: Path,
    unlisted: ManifestFile | None = None,
) -> ManifestRef | None:
    """Write the failures of all batches into one list; the lists of the batches are removed.

    ``key`` is given the sha256 of the list; what is in ``unlisted``, a local list, comes first.
    """
    if not lists and unlisted is None:
        return None
    first = read_manifest(unlisted.path, FAILURES) if unlisted else iter(())
    rows = chain(first, *(read_ref(root, ref, FAILURES) for ref in lists))
    file = write_manifest(folder / "all-failures.parquet", FAILURES, rows)
    found = put_named(root, key(file.sha256), file)
    for ref in lists:
        root.delete(ref.key)
    return found


def read_failures(root: Store, ref: ManifestRef) -> Iterator[pa.RecordBatch]:
    yield from read_ref(root, ref, FAILURES)
