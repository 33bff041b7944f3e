"""The keys of all files of a dataset, below ``STORAGE/larder/DATASET/``.

::

    mirror/KEY                 the mirrored objects
    work/mirror/               the record of the mirror (`larder.copy.copy_record`)
    work/replaced/PATH-STATE   files that a repair has replaced
    work/conditions.json       which conditional writes the store keeps
    work/derived/              indexes of containers, and Larder's own containers, from which
                               samples are read by name (`larder.manifest.extents`)
    work/measured.json         how fast an earlier run copied
    work/probe-*               objects that try permissions, or show the store's time
    segments/SEG/              immutable once segment.json is there
      segment.json             the last write
      shards/SPLIT/NAME        shards and nothing else
      index/                   its samples and shards as numpy arrays, and the sources of
                               its samples
      index/KIND/SPLIT/NAME    indexes of one shard for other readers
      caches/CACHE/            one LMDB file per split; cache.json is the last write
      work/shards/SPLIT/       a receipt of each finished shard: its rows of the index
      work/caches/             receipts of finished cache files
    versions/ID/
      version.json             the last write, created if absent
      manifests/               the objects it was made from
      classes.json             the number of each class
      readers/KIND/SPLIT.json  indexes of a split for other readers
      consumers/NAME/          files that a consumer reads; derived, like the card
      card/card.html           a page about the version, derived from it and no part of it
      runs/                    records of runs that published or tagged it; no part of it
    tags/NAME.json             movable names
    leases/NAME.json           leases: versions and segments that no clean may delete
    tombstones/RANDOM.json     units that a clean will delete (`larder.versions.leases`)

Every function returns a key relative to the dataset's root. Pure.
"""

from __future__ import annotations

MIRROR_PREFIX = "mirror/"
SEGMENTS_PREFIX = "segments/"
TAGS_PREFIX = "tags/"
LEASES_PREFIX = "leases/"
TOMBSTONES_PREFIX = "tombstones/"
DERIVED_PREFIX = "work/derived/"
COPIES_PREFIX = "work/mirror/"
"""Prefix of the record of the copies in the mirror."""
CONDITIONS_KEY = "work/conditions.json"
MEASURED_KEY = "work/measured.json"
REPLACED_PREFIX = "work/replaced/"
"""Prefix of the files that repairs have replaced."""
PROBE_PREFIX = "work/probe-"
SPLIT_INDEX_TO_ROOT = "../../../.."
"""Relative path from the folder of a `split_index_key` to the dataset's root."""


def dataset_prefix(dataset: str) -> str:
    """Return the dataset's root in the storage: ``larder/DATASET/``."""
    return f"larder/{dataset}/"


def segment_prefix(segment: str) -> str:
    return f"{SEGMENTS_PREFIX}{segment}/"


def segment_key(segment: str) -> str:
    """Key of the document whose presence makes the segment complete."""
    return f"{segment_prefix(segment)}segment.json"


def shards_prefix(segment: str) -> str:
    """Prefix of the shards of a segment, and of nothing else."""
    return f"{segment_prefix(segment)}shards/"


def shard_key(segment: str, split: str, name: str) -> str:
    return f"{shards_prefix(segment)}{split}/{name}"


def segment_of(key: str) -> str:
    return key.split("/")[1]


def index_prefix(segment: str) -> str:
    return f"{segment_prefix(segment)}index/"


def index_key(segment: str, role: str, sha256: str) -> str:
    """Key of an index of the segment; its bytes may differ, so its name contains its digest."""
    suffix = "npz" if role == "rows" else "parquet"
    return f"{index_prefix(segment)}{role}-{sha256[:16]}.{suffix}"


def reader_index_key(segment: str, kind: str, split: str, name: str) -> str:
    """Key of the index of one shard for another reader; its bytes follow from the shard's."""
    return f"{index_prefix(segment)}{kind}/{split}/{name}"


def cache_prefix(segment: str, cache: str) -> str:
    return f"{segment_prefix(segment)}caches/{cache}/"


def cache_key(segment: str, cache: str) -> str:
    """Key of the document whose presence makes a cache complete."""
    return f"{cache_prefix(segment, cache)}cache.json"


def cache_of(key: str) -> tuple[str, str] | None:
    """Return the segment and the ID of the cache that a key belongs to; None for other keys."""
    names = key.split("/")
    return (
        (names[1], names[3])
        if len(names) > 4 and f"{names[0]}/" == SEGMENTS_PREFIX and names[2] == "caches"
        else None
    )


def cache_file_key(place: str, sha256: str) -> str:
    """Key of the cache file of one split; its bytes may differ, so its name has their digest."""
    return f"{place}-{sha256[:16]}.mdb"


def cache_place(segment: str, cache: str, split: str) -> str:
    """Return the place that a cache file records about itself: its key without the digest."""
    return f"{cache_prefix(segment, cache)}{split}"


def place_of_cache_file(key: str) -> str:
    return key.rpartition("-")[0]


def work_prefix(segment: str) -> str:
    """Prefix of the receipts of a segment that is being built."""
    return f"{segment_prefix(segment)}work/"


def cache_work_prefix(segment: str, cache: str) -> str:
    """Prefix of the receipts of the files of a cache."""
    return f"{work_prefix(segment)}caches/{cache}/"


def replaced_key(path: str, state: str) -> str:
    """Key of a replaced file; ``state`` is 16 hex digits that identify its etag."""
    return f"{REPLACED_PREFIX}{path}-{state}"


def receipts_prefix(segment: str, split: str = "") -> str:
    """Prefix of the receipts of the shards of a split, or of all shards of a segment."""
    return f"{work_prefix(segment)}shards/" + (f"{split}/" if split else "")


def receipt_key(segment: str, split: str, name: str, digest: str) -> str:
    """Key of the receipt of a shard; ``digest`` is 16 hex digits that identify its objects."""
    return f"{receipts_prefix(segment, split)}{name}-{digest}.parquet"


def undigested_name(key: str) -> str:
    """Return the shard of a receipt, or the split of a list: the file's name without its digest."""
    return key.rpartition("/")[2].rpartition("-")[0]


def version_prefix(version: str) -> str:
    return f"versions/{version}/"


def version_key(version: str) -> str:
    """Key of the document whose presence publishes the version."""
    return f"{version_prefix(version)}version.json"


def manifest_key(version: str, role: str, sha256: str) -> str:
    return f"{version_prefix(version)}manifests/{role}-{sha256[:16]}.parquet"


def omitted_key(version: str, sha256: str) -> str:
    return f"{version_prefix(version)}manifests/omitted-{sha256[:16]}.npy"


def list_key(version: str, split: str, sha256: str) -> str:
    return f"{version_prefix(version)}lists/{split}-{sha256[:16]}.txt"


def card_key(version: str) -> str:
    """Key of the data card of a version, which can be made again at any time."""
    return f"{version_prefix(version)}card/card.html"


def consumers_prefix(version: str) -> str:
    """Prefix of the files that emitting writes for consumers that read them from the storage."""
    return f"{version_prefix(version)}consumers/"


def runs_prefix(version: str) -> str:
    return f"{version_prefix(version)}runs/"


def run_key(version: str, began: str, sha256: str) -> str:
    """Key of the record of a run; the time comes first, so that a listing is in order of time."""
    return f"{runs_prefix(version)}{began.replace(':', '')}-{sha256[:16]}.json"


def classes_key(version: str) -> str:
    return f"{version_prefix(version)}classes.json"


def split_index_key(version: str, kind: str, split: str) -> str:
    """Key of an index of all shards of a split; its bytes follow from the version."""
    return f"{version_prefix(version)}readers/{kind}/{split}.json"


def tag_key(tag: str) -> str:
    return f"{TAGS_PREFIX}{tag}.json"


def lease_key(lease: str) -> str:
    return f"{LEASES_PREFIX}{lease}.json"


def tombstone_key(name: str) -> str:
    return f"{TOMBSTONES_PREFIX}{name}.json"
