"""The annotation files of a run: found with the source, and read if there is something to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa

from larder.config.models import Cluster, Dataset
from larder.errors import ConfigError, NotFoundError, ObjectError
from larder.manifest.files import read_manifest
from larder.manifest.schemas import OBJECTS
from larder.pipeline.job import storage_of
from larder.samples.joins import Joins
from larder.samples.matching import Matching
from larder.samples.order import ignored_keys
from larder.samples.parts import named_objects
from larder.source.expand.annotations import Indexed, index_annotations
from larder.source.inventory import Inventory
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable
from larder.versions import layout
from larder.versions.publish import own_file_errors


def find_annotations(dataset: Dataset, source: Readable) -> tuple[ObjectInfo, ...]:
    """The annotation files as they are now; a missing one is ``config.annotations``."""
    annotations = dataset.samples.annotations
    return tuple(_found(source, key) for key in (annotations.files if annotations else ()))


def _found(source: Readable, key: str) -> ObjectInfo:
    try:
        with own_file_errors():
            return source.head(key)
    except NotFoundError:
        message = "no such annotation file"
    except ObjectError as error:
        if error.code != "object.bad_key":
            raise
        message = error.message
    where = object_url(source.url, key)
    hint = "samples.annotations.files names keys in the source"
    raise ConfigError("config.annotations", message, where=where, hint=hint)


def read_annotations(
    dataset: Dataset,
    cluster: Cluster,
    source: Readable,
    files: Sequence[ObjectInfo],
    folder: Path,
    *,
    plan_only: bool,
) -> tuple[Indexed, ...]:
    """The entries of the annotation files; each file is read once, however many runs there are."""
    options, labels = dataset.samples.annotations, dataset.labels
    if options is None:
        return ()
    column = labels.column if labels and labels.source == "column" else None
    own = storage_of(dataset, cluster, layout.derived_prefix())
    put = None if plan_only else own
    return tuple(
        index_annotations(source, info, options, column, own, put, folder) for info in files
    )


def match_annotations(
    dataset: Dataset, inventory: Inventory, indexed: Sequence[Indexed], folder: Path
) -> Matching | None:
    """Find the samples of the entries; None if there are no annotation files."""
    if dataset.samples.annotations is None:
        return None
    join = dataset.samples.join
    objects = read_manifest(inventory.file.path, OBJECTS, columns=["key", "size_bytes"])
    named = named_objects(objects, ignored_keys(dataset), Joins(join) if join else None)

    def entries() -> Iterator[pa.RecordBatch]:
        for each in indexed:
            yield from each.entries()

    return Matching(entries, named, folder)
