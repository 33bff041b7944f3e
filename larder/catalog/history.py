"""Lists the versions of a dataset: since when they exist, their names, and their changes.

Reads one listing of the dataset, the tags, and a few small documents for each version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from larder.budgets import map_ahead
from larder.catalog.holdings import (
    READERS,
    Holdings,
    Named,
    Unit,
    named_by,
    prefixes_of,
    readers,
    take_holdings,
)
from larder.catalog.stored_dataset import StoredDataset
from larder.config.models.cluster import Cluster
from larder.errors import ConfigError, DamageError, printable
from larder.names import NAME
from larder.segments.stores import dataset_root
from larder.store import open_location
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import LAST, listed
from larder.units import (
    format_bytes,
    format_changes,
    format_count,
    format_time,
    suggest,
    table_lines,
)
from larder.versions.publish import read_version
from larder.versions.runs import RunRecord, read_run
from larder.versions.tags import TAG, published, read_tag, tag_names

_SHORT = 8


class ListedVersion(NamedTuple):
    """A version of a dataset.

    Attributes:
        published_us: When its document was written, by the store's clock.
        row: The version in a list, without its own bytes.
        named: The segments and caches that it names; None if its document cannot be read.
        units: The prefixes of all its units.
    """

    published_us: int
    row: dict[str, Any]
    named: Named | None
    units: Sequence[str]

    @property
    def id(self) -> str:
        return str(self.row["version"])


def read_history(root: Store, holdings: Holdings) -> list[ListedVersion]:
    """Read all versions that have their document, newest first by the store's clock."""
    tags: dict[str, list[str]] = {}
    for name in tag_names(root):
        with suppress(DamageError):
            if tag := read_tag(root, name):
                tags.setdefault(tag.version, []).append(name)
    units = holdings.units.items()
    found = [each for each in units if each[0].startswith("versions/") and each[1].document_us]
    with readers() as pool:
        read = partial(_listed_version, root, tags)
        versions = list(map_ahead(pool, read, found, window=2 * READERS))
    return sorted(versions, key=lambda version: version.published_us, reverse=True)


def _listed_version(
    root: Store, tags: Mapping[str, Sequence[str]], found: tuple[str, Unit]
) -> ListedVersion:
    id_, published_us = found[0].partition("/")[2], found[1].document_us or 0
    row: dict[str, Any] = {"version": id_, "published": format_time(published_us)}
    row |= {"tags": dict.fromkeys(tags.get(id_, ())), "problem": None}
    row |= dict.fromkeys(("samples", "bytes", "previous", "changes", "by"))
    named = None
    try:
        if document := read_version(root, id_):
            splits, named = document.splits.values(), named_by(document)
            row["samples"] = sum(split.samples for split in splits)
            row["bytes"] = sum(split.bytes for split in splits)
            row |= _recorded(root, found[1].runs, row["tags"])
    except DamageError as error:
        row["problem"] = error.message
    units = [found[0], *prefixes_of(named or Named())]
    return ListedVersion(published_us, row, named, units)


def _recorded(root: Store, infos: Iterable[ObjectInfo], tags: Iterable[str]) -> dict[str, Any]:
    """Read from records since when tags name a version, and about the run that published it."""
    runs = sorted(infos, key=lambda info: info.modified_us)
    since: dict[str, str | None] = dict.fromkeys(tags)
    records = _records(root, runs if since else runs[:1])
    for info, record in records:
        if record.tag in since and record.before != record.after == record.version:
            since[record.tag] = format_time(info.modified_us)
    first = next((record for _, record in records if record.published), None)
    if first is None:
        return {"tags": since}
    by = first.flow_run or first.command
    return {"tags": since, "previous": first.previous, "changes": dict(first.changes), "by": by}


def _records(root: Store, infos: Iterable[ObjectInfo]) -> list[tuple[ObjectInfo, RunRecord]]:
    """Read records of runs; damaged records are left out."""
    records = []
    for info in infos:
        with suppress(DamageError):
            if record := read_run(root, info.key):
                records.append((info, record))
    return records


def own_bytes(versions: Sequence[ListedVersion], sizes: Mapping[str, int]) -> dict[str, int]:
    """Return by ID the bytes that no other version names, given the sizes of units."""
    names = Counter(unit for version in versions for unit in version.units)
    return {
        version.id: sum(sizes[unit] for unit in version.units if names[unit] == 1)
        for version in versions
    }


def dataset_names(cluster: Cluster) -> Iterator[str]:
    """Yield the names of the datasets of a storage, with one request for each.

    ``store.missing``: the storage is a directory that does not exist.
    """
    storage, folder = open_location(cluster.storage, limits=cluster.copy_), "larder/"
    after = folder
    while info := next(chain.from_iterable(storage.list(folder, start_after=after)), None):
        name, slash, _ = info.key.removeprefix(folder).partition("/")
        after = f"{folder}{name}/{LAST}" if slash else info.key
        if slash and NAME.allows(name):
            yield name


def check_dataset(place: StoredDataset) -> Store:
    """Return the root of a dataset; ``version.missing`` names the nearest if it does not exist."""
    root = place.open()
    if next(listed(root, ""), None) is None:
        message = f"there is no dataset {place.dataset}"
        hint = suggest(place.dataset, dataset_names(place.cluster), "datasets")
        raise ConfigError("version.missing", message, where=root.url, hint=hint)
    return root


def list_datasets(cluster: Cluster) -> dict[str, Any]:
    """List the datasets of a storage, each with the version of `latest`; a JSON document."""
    with readers() as pool:
        names = dataset_names(cluster)
        rows = list(map_ahead(pool, partial(_dataset, cluster), names, window=2 * READERS))
    return {"storage": cluster.storage.url, "datasets": rows}


def _dataset(cluster: Cluster, name: str) -> dict[str, Any]:
    root = dataset_root(name, cluster)
    dates = {infos[0].key.split("/")[1]: infos[0].modified_us for infos in published(root)}
    row: dict[str, Any] = {"dataset": name, "versions": len(dates), "version": None}
    row |= dict.fromkeys(("published", "samples", "bytes"))
    with suppress(DamageError):
        tag = read_tag(root, TAG)
        version = read_version(root, tag.version) if tag else None
        if version:
            splits, date = version.splits.values(), dates.get(version.id)
            row["version"], row["published"] = version.id, format_time(date) if date else None
            row["samples"] = sum(split.samples for split in splits)
            row["bytes"] = sum(split.bytes for split in splits)
    return row


def list_versions(place: StoredDataset) -> dict[str, Any]:
    """List the versions of a dataset, newest first; a JSON document."""
    root = check_dataset(place)
    holdings = take_holdings(root, place.dataset)
    versions = read_history(root, holdings)
    sizes = own_bytes(versions, holdings.sizes)
    rows = [version.row | {"own_bytes": sizes[version.id]} for version in versions]
    return {"dataset": place.dataset, "storage": place.cluster.storage.url, "versions": rows}


def short_ids(ids: Iterable[str]) -> dict[str, str]:
    """Cut IDs to eight digits, or to as many more as tell them apart."""
    ids = list(dict.fromkeys(ids))
    length = next(n for n in range(_SHORT, 33) if len({id_[:n] for id_ in ids}) == len(ids))
    return {id_: id_[:length] for id_ in ids}


def list_datasets_lines(document: Mapping[str, Any]) -> list[str]:
    if not document["datasets"]:
        return [f"no datasets in {document['storage']}"]
    rows = [["dataset", "versions", "latest", "published", "samples", "size"]]
    for each in document["datasets"]:
        row = [each["dataset"], f"{each['versions']:,}", (each["version"] or "")[:_SHORT]]
        rows.append([*row, shown_time(each["published"]), *_amount(each)])
    return table_lines(rows)


def list_versions_lines(document: Mapping[str, Any]) -> list[str]:
    count = format_count(len(document["versions"]), "version")
    rows = [row[:-1] for row in version_rows(document)] if document["versions"] else []
    return [f"{document['dataset']}: {count}", *map(printable, table_lines(rows))]


def version_rows(document: Mapping[str, Any]) -> list[list[str]]:
    """Return the versions as a table with a head; the last column says what published each."""
    short = short_ids(each["version"] for each in document["versions"])
    rows = [["version", "published", "samples", "size", "own", "tags", "changes", "by"]]
    for each in document["versions"]:
        row = [short[each["version"]], shown_time(each["published"]), *_amount(each)]
        changes = each["problem"] or format_changes(each["changes"] or {})
        row += [format_bytes(each["own_bytes"]), ", ".join(each["tags"]), changes]
        rows.append([*row, each["by"] or ""])
    return rows


def _amount(row: Mapping[str, Any]) -> list[str]:
    if row["samples"] is None:
        return ["", ""]
    return [f"{row['samples']:,}", format_bytes(row["bytes"])]


def shown_time(time: str | None) -> str:
    """Format a time as ``2026-11-27 20:18``."""
    return (time or "")[:16].replace("T", " ")
