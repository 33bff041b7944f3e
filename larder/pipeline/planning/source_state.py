"""The state of the source, and whether it has already been prepared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from larder.config.models.cluster import Cluster
from larder.config.models.dataset import Dataset
from larder.config.urls import check_overlap
from larder.copy.site import in_region, missing_region
from larder.errors import ConfigError, NotFoundError, ObjectError
from larder.jobs.results import BatchReport, RunError
from larder.manifest.digest import sha256_hex
from larder.manifest.manifest_files import read_manifest
from larder.manifest.schemas import OBJECTS
from larder.pipeline.settings import Settings
from larder.progress import Progress
from larder.samples.decoders import resolved
from larder.segments.completeness import check_complete
from larder.segments.stores import source_of, storage_of
from larder.shards.formats import shard_format
from larder.source.inventory import Inventory, take_inventory
from larder.source.selection import Unlisted
from larder.store import object_url
from larder.store.base import ObjectInfo, Readable, Store
from larder.store.own_files import published_file_errors
from larder.store.permissions import is_remote, permission, probe_source, probe_storage, sample_of
from larder.units import format_bytes
from larder.versions import layout
from larder.versions.documents import VersionDocument
from larder.versions.identity import cache_builder, inputs_digest, is_first_build
from larder.versions.publish import read_segment, read_version
from larder.versions.tags import TAG, Tag, read_tag

if TYPE_CHECKING:
    from larder.source.expand.annotations import Indexed

MAX_LABEL_FILE_BYTES = 256 * 1024**2


class SourceState(NamedTuple):
    """The facts that a run finds out before it does anything.

    If there is something to do, ``inventory`` has the contents of archives and tables in place of
    them, and ``annotations`` the entries of annotation files. ``published`` is the version that
    these inputs led to, if any, and ``published_us`` when it was published, by the store's clock.

    ``tag`` is ``latest`` before the listing, and ``previous`` the version to start from, with the
    numbered ``classes``; see `_previous`. A compaction that another run has superseded starts from
    its own version instead. The regions are set if they were found and not configured.
    """

    settings: Settings
    inventory: Inventory
    annotations: tuple[Indexed, ...]
    label_files: Mapping[str, bytes]
    inputs: str
    tag: Tag | None
    previous: VersionDocument | None
    classes: tuple[str, ...]
    published: VersionDocument | None
    published_us: int = 0
    source_region: str | None = None
    storage_region: str | None = None

    @property
    def dataset(self) -> Dataset:
        dataset = self.settings.dataset
        source = in_region(dataset.source, self.source_region)
        return dataset.model_copy(update={"source": source})

    @property
    def expected(self) -> str | None:
        """ID of the version from which this run may move the tag; None if there was no tag."""
        return self.tag.version if self.tag else None

    @property
    def cluster(self) -> Cluster:
        cluster = self.settings.cluster
        storage = in_region(cluster.storage, self.storage_region)
        return cluster.model_copy(update={"storage": storage})


def inspect_source(
    settings: Settings,
    folder: Path,
    compaction: str | None = None,
    plan_only: bool = False,
    *,
    progress: Progress,
) -> SourceState:
    """Read the tag, then list the source. Writes only into ``folder``.

    The order matters: if the tag moves after it was read, another run may have used a newer
    listing. Permissions are tried as soon as there is something to do: at once if there is no tag,
    else after the listing. With ``plan_only``, only reading is tried.

    ``compaction`` is a compaction by this run that another run has superseded: later changes are
    added to it. DamageError: the version of these inputs is incomplete.
    """
    dataset, cluster = settings.dataset, settings.cluster
    storage = cluster.storage
    resolved(dataset.image_options.decoders)  # before the first request to a store
    cache_builder(dataset)
    check_overlap(
        dataset.source.url,
        storage.url,
        source_endpoint=dataset.source.access.endpoint,
        storage_endpoint=storage.access.endpoint,
    )
    root = storage_of(dataset, cluster)
    unlisted = Unlisted(dataset.source.include, dataset.source.exclude)
    source = source_of(dataset, cluster, unlisted=unlisted)
    with permission(root, "storage", "get"):
        tag = read_tag(root, TAG)
    listing = dataset.source.inventory is None
    if tag is None and listing:
        probe_source(source)
    if tag is None and not plan_only:
        probe_storage(root, layout.PROBE_PREFIX)
    previous, classes = _previous(root, tag)
    with permission(source, "source", "list" if listing else "get"):
        inventory = take_source(dataset, cluster, source, unlisted, folder, progress)
    with permission(source, "source", "get"):
        keys = dataset.labels.files if dataset.labels else {}
        label_files = {split: _read_label_file(source, split, key) for split, key in keys.items()}
        annotations = _find_annotations(dataset, source)
    inputs = inputs_digest(
        dataset,
        inventory.digest,
        {split: sha256_hex(data) for split, data in label_files.items()},
        [(info.key, info.size_bytes, info.etag) for info in annotations],
        oldest_kept=shard_format(dataset.shards.format).oldest_kept,
    )
    is_latest = tag and previous and (previous.id, inputs) == (tag.version, tag.inputs)
    published = previous if is_latest else None
    if published and settings.compact and not _is_compact(root, published, dataset):
        published = None
    if published is None and (tag is not None or not listing):
        probe_source(source, _samples(source, inventory))
    if published is None and tag is not None and not plan_only:
        probe_storage(root, layout.PROBE_PREFIX)
    published_us = 0
    if published is not None:
        published_us = check_complete(root, published)
    elif compaction is not None and (continued := _compaction(root, compaction, classes)):
        previous, classes = continued
        settings = settings._replace(compact=False)
    indexed: tuple[Indexed, ...] = ()
    if published is None:
        # Only now: an unchanged source, the usual case, is not expanded.
        from larder.pipeline.planning.expanding import expand_inventory, read_annotations

        inventory = expand_inventory(
            dataset, cluster, source, inventory, folder, plan_only=plan_only, progress=progress
        )
        with permission(source, "source", "get"):
            indexed = read_annotations(
                dataset, cluster, source, annotations, folder, plan_only=plan_only
            )
    return SourceState(
        settings=settings,
        inventory=inventory,
        annotations=indexed,
        label_files=label_files,
        inputs=inputs,
        tag=tag,
        previous=previous,
        classes=classes,
        published=published,
        published_us=published_us,
        source_region=None if published else missing_region(dataset.source, source),
        storage_region=None if published else missing_region(storage, root),
    )


def _is_compact(root: Store, version: VersionDocument, dataset: Dataset) -> bool:
    """Return whether a version of the same inputs, by its documents, equals a first build.

    False if documents alone do not tell, as with ``shards.count_min``: a plan finds out.
    """
    if len(version.segments) > 1 or dataset.shards.count_min is not None:
        return False
    segment = read_segment(root, version.segments[0].id)
    current = shard_format(dataset.shards.format).version
    return segment is not None and is_first_build(version, segment, version.skipped, {}, current)


def _samples(source: Readable, inventory: Inventory) -> list[ObjectInfo]:
    """Choose objects of a bucket, to read a byte of each."""
    if not is_remote(source):
        return []
    columns = ["key", "size_bytes"]
    batch = next(read_manifest(inventory.file.path, OBJECTS, columns=columns))
    listed = (column.to_pylist() for column in batch.columns)
    return sample_of(list(map(ObjectInfo, *listed, repeat(""), repeat(0))))


def take_source(
    dataset: Dataset,
    cluster: Cluster,
    source: Readable,
    unlisted: Unlisted,
    folder: Path,
    progress: Progress,
) -> Inventory:
    """Take the inventory of a dataset's source, without the contents of archives and tables.

    ``run.failed``: the source could not list the paths in ``unlisted``, and they are not to be
    skipped.
    """
    failures, containers, report = unlisted.failures, None, None
    fails = dataset.on_bad_key == "fail"
    if dataset.source.archives == "expand":
        from larder.source.expand.archives import archives_to_list

        containers = archives_to_list(dataset.source.include)
    if dataset.source.inventory is not None:
        from larder.source.reports import open_report

        opened = partial(source_of, dataset, cluster)
        report = open_report(dataset.source.inventory, dataset.source.url, opened)
    try:
        inventory = take_inventory(
            source,
            dataset.source.include,
            dataset.source.exclude,
            folder / "inventory.parquet",
            progress,
            report,
            containers=containers,
        )
    except ConfigError:
        if not (failures.count and fails):
            raise
    if failures.count and fails:
        raise RunError("inventory", BatchReport.of(failures))
    return replace(inventory, unlisted=failures.count, failures=tuple(failures.shown))


def _previous(root: Store, tag: Tag | None) -> tuple[VersionDocument | None, tuple[str, ...]]:
    """Find the version to start from, and the numbered classes of the newest document.

    A document may be missing because a user deleted it to have damage repaired. Then the newest
    version in the tag's history with all its documents is returned. If the version that the tag
    names has its document, anything else that it lacks is damage.
    """
    classes: tuple[str, ...] | None = None
    for named in tag.versions() if tag else ():
        document = read_version(root, named)
        if document is None:
            continue
        classes = document.classes if classes is None else classes
        segments = (read_segment(root, use.id) for use in document.segments)
        if (tag and named == tag.version) or all(segments):
            return document, classes
    return None, classes or ()


def _compaction(
    root: Store, compaction: str, classes: tuple[str, ...]
) -> tuple[VersionDocument, tuple[str, ...]] | None:
    """Read the run's own version, with all classes that have numbers.

    None if its class numbers contradict the numbers in ``classes``: the other run's numbers stay,
    as training may have read them under a tag.
    """
    document = read_version(root, compaction)
    if document is None:
        return None
    fewer, more = sorted((document.classes, classes), key=len)
    return (document, more) if more[: len(fewer)] == fewer else None


def _read_label_file(source: Readable, split: str, key: str) -> bytes:
    where, hint = object_url(source.url, key), f"labels.files.{split} names a key in the source"
    absent = f"put the labels of split {split!r} there, or change labels.files.{split}"
    with _refused("config.label", "label file", where, absent, hint):
        size_bytes = source.head(key).size_bytes
        if size_bytes <= MAX_LABEL_FILE_BYTES:
            return bytes(source.get(key))
    maximum = format_bytes(MAX_LABEL_FILE_BYTES)
    message = f"a label file of {format_bytes(size_bytes)}; the maximum is {maximum}"
    raise ConfigError("config.label", message, where=where, hint=hint)


def _find_annotations(dataset: Dataset, source: Readable) -> tuple[ObjectInfo, ...]:
    """Return the annotation files as they are now; a missing file is ``config.annotations``."""
    annotations = dataset.samples.annotations
    hint = "samples.annotations.files names keys in the source"
    found = []
    for key in annotations.files if annotations else ():
        where = object_url(source.url, key)
        with _refused("config.annotations", "annotation file", where, hint, hint):
            found.append(source.head(key))
    return tuple(found)


@contextmanager
def _refused(code: str, kind: str, where: str, absent: str, hint: str) -> Iterator[None]:
    """Raise a ConfigError for a key in the dataset file that names no object in the source."""
    try:
        with published_file_errors():
            yield
    except NotFoundError:
        raise ConfigError(code, f"no such {kind}", where=where, hint=absent) from None
    except ObjectError as error:
        if error.code != "object.bad_key":
            raise
        raise ConfigError(code, error.message, where=where, hint=hint) from None
