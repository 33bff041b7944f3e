"""Counts the bytes of a dataset by kind, from one listing of the whole dataset."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from larder.catalog.cleaning import CleanSettings, plan_with
from larder.catalog.due import KeepPolicy
from larder.catalog.history import (
    ListedVersion,
    check_dataset,
    dataset_names,
    own_bytes,
    read_history,
    short_ids,
    shown_time,
)
from larder.catalog.holdings import Holdings, read_needed, take_holdings
from larder.catalog.stored_dataset import StoredDataset
from larder.config.models.cluster import Cluster
from larder.errors import DamageError
from larder.store.base import Store
from larder.units import format_bytes, table_lines
from larder.versions import layout

PLACES = ("segments", "versions", "mirror", "work", "others")
"""Kinds by which the bytes below the root of a dataset are counted."""


def usage(place: StoredDataset) -> dict[str, Any]:
    """Count the bytes of a dataset, of its versions and of its segments; a JSON document."""
    root = check_dataset(place)
    holdings = take_holdings(root, place.dataset, mirror=True)
    versions = read_history(root, holdings)
    own_sizes = own_bytes(versions, holdings.sizes)
    segments: Counter[str] = Counter()
    for prefix, size_bytes in holdings.sizes.items():
        if prefix.startswith(layout.SEGMENTS_PREFIX):
            segments[layout.segment_of(prefix)] += size_bytes
    names = Counter(segment for each in versions for segment, _ in each.named or ())
    clean_bytes, problem = _freed(place, root, holdings, versions)
    return {
        "dataset": place.dataset,
        "storage": place.cluster.storage.url,
        "bytes": _places(holdings),
        "clean_bytes": clean_bytes,
        "clean_problem": problem,
        "versions": [
            {
                "version": each.id,
                "published": each.row["published"],
                "bytes": sum(holdings.sizes[unit] for unit in each.units),
                "own_bytes": own_sizes[each.id],
            }
            for each in versions
        ],
        "segments": [
            {"segment": segment, "bytes": size_bytes, "versions": names[segment]}
            for segment, size_bytes in segments.most_common()
        ],
    }


def _freed(
    place: StoredDataset, root: Store, holdings: Holdings, versions: Sequence[ListedVersion]
) -> tuple[int | None, str | None]:
    """Return the bytes that `larder clean --keep 1` frees, or the damage that prevents it."""
    now_us = time.time_ns() // 1000
    named = {each.id: each.named for each in versions if each.named is not None}
    try:
        needed = read_needed(root, now_us, named if len(named) == len(versions) else None)
        settings = CleanSettings(place, KeepPolicy(keep=1))
        return plan_with(settings, holdings, needed, now_us).freed.bytes, None
    except DamageError as error:
        return None, str(error)


def usage_of_all(cluster: Cluster) -> dict[str, Any]:
    """Count the bytes of all datasets of a storage; a JSON document."""
    rows = []
    for name in dataset_names(cluster):
        root = StoredDataset(name, cluster).open()
        holdings = take_holdings(root, name, mirror=True)
        rows.append({"dataset": name, "bytes": _places(holdings)})
    return {"storage": cluster.storage.url, "datasets": rows}


def _places(holdings: Holdings) -> dict[str, int]:
    places = dict.fromkeys(PLACES, 0)
    for prefix, size_bytes in holdings.sizes.items():
        place = prefix.partition("/")[0]
        places[place if place in places else "others"] += size_bytes
    return places


def usage_lines(document: Mapping[str, Any]) -> list[str]:
    places, versions, segments = (document[name] for name in ("bytes", "versions", "segments"))
    version_ids = short_ids(each["version"] for each in versions)
    segment_ids = short_ids(each["segment"] for each in segments)
    tables = (
        [["in", "size"], *([place, format_bytes(places[place])] for place in PLACES)],
        [["version", "published", "size", "own"]]
        + [
            [version_ids[each["version"]], shown_time(each["published"])]
            + [format_bytes(each[name]) for name in ("bytes", "own_bytes")]
            for each in versions
        ],
        [["segment", "size", "versions"]]
        + [
            [segment_ids[each["segment"]], format_bytes(each["bytes"]), f"{each['versions']:,}"]
            for each in segments
        ],
    )
    total, problem = sum(places.values()), document["clean_problem"]
    clean = f"larder clean {document['dataset']} --keep 1"
    told = f"is refused: {problem}" if problem else f"frees {format_bytes(document['clean_bytes'])}"
    lines = [f"{document['dataset']}: {format_bytes(total)}"]
    lines += [line for rows in tables for line in ("", *table_lines(rows))]
    return [*lines, "", f"{clean} {told}"]


def usage_of_all_lines(document: Mapping[str, Any]) -> list[str]:
    rows = [["dataset", "size", *PLACES]]
    for each in document["datasets"]:
        sizes = [sum(each["bytes"].values()), *(each["bytes"][place] for place in PLACES)]
        rows.append([each["dataset"], *map(format_bytes, sizes)])
    return table_lines(rows) if document["datasets"] else [f"no datasets in {document['storage']}"]
