"""How many bytes a dataset takes, and what they are: from one listing of all of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from larder.catalog.clean import CleanSettings, plan_clean
from larder.catalog.due import Policy
from larder.catalog.history import (
    Unit,
    check_dataset,
    dataset_names,
    own_bytes,
    read_history,
    short_ids,
    shown_time,
)
from larder.catalog.place import Place
from larder.config.models.cluster import Cluster
from larder.progress import NullProgress
from larder.store.base import Store
from larder.store.own_files import listed
from larder.units import format_bytes, table_lines
from larder.versions import layout

PLACES = ("segments", "versions", "mirror", "work", "others")
"""What is below the root of a dataset, as it is counted."""


def usage(place: Place) -> dict[str, Any]:
    """The bytes of a dataset, of its versions and of its segments; a JSON document."""
    root = check_dataset(place)
    places, units = _sums(root)
    versions = read_history(root)
    own_sizes = own_bytes(versions, units)
    cleaning = CleanSettings(place, Policy(keep=1))
    freed = plan_clean(cleaning, plan_only=True, progress=NullProgress()).freed
    names = Counter(segment for each in versions for segment, cache in each.units if not cache)
    segments: Counter[str] = Counter()
    for (segment, _), size_bytes in units.items():
        segments[segment] += size_bytes
    return {
        "dataset": place.dataset,
        "storage": place.cluster.storage.url,
        "bytes": places,
        "clean_bytes": freed.bytes,
        "versions": [
            {
                "version": each.id,
                "published": each.row["published"],
                "bytes": each.beside_bytes + sum(units[unit] for unit in each.units),
                "own_bytes": own_sizes[each.id],
            }
            for each in versions
        ],
        "segments": [
            {"segment": segment, "bytes": size_bytes, "versions": names[segment]}
            for segment, size_bytes in segments.most_common()
        ],
    }


def usage_of_all(cluster: Cluster) -> dict[str, Any]:
    """The bytes of all datasets of a storage; a JSON document."""
    rows = []
    for name in dataset_names(cluster):
        places, _ = _sums(Place(name, cluster).open())
        rows.append({"dataset": name, "bytes": places})
    return {"storage": cluster.storage.url, "datasets": rows}


def _sums(root: Store) -> tuple[dict[str, int], Counter[Unit]]:
    """The bytes by place, and those of each segment and cache."""
    places, units = dict.fromkeys(PLACES, 0), Counter[Unit]()
    for info in listed(root, ""):
        place, _, rest = info.key.partition("/")
        places[place if place in places else "others"] += info.size_bytes
        if place == "segments" and rest:
            _, cache = layout.cache_of(info.key) or ("", None)
            units[rest.partition("/")[0], cache] += info.size_bytes
    return places, units


def usage_lines(document: Mapping[str, Any]) -> list[str]:
    """What `usage` returns, for people."""
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
    total, freed = sum(places.values()), format_bytes(document["clean_bytes"])
    lines = [f"{document['dataset']}: {format_bytes(total)}"]
    lines += [line for rows in tables for line in ("", *table_lines(rows))]
    return [*lines, "", f"larder clean {document['dataset']} --keep 1 frees {freed}"]


def usage_of_all_lines(document: Mapping[str, Any]) -> list[str]:
    """What `usage_of_all` returns, for people."""
    rows = [["dataset", "size", *PLACES]]
    for each in document["datasets"]:
        sizes = [sum(each["bytes"].values()), *(each["bytes"][place] for place in PLACES)]
        rows.append([each["dataset"], *map(format_bytes, sizes)])
    return table_lines(rows) if document["datasets"] else [f"no datasets in {document['storage']}"]
