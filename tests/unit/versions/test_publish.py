from dataclasses import replace
from types import SimpleNamespace

import pytest

from larder.bounds import DOCUMENT_BYTES
from larder.manifest.sealed import seal
from larder.progress import NullProgress
from larder.verify.document_check import DocumentReader
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    CacheFacts,
    CacheFile,
    SegmentUse,
    SplitFacts,
    VersionDocument,
    parse_document,
)
from larder.versions.publish import publish_document, read_cache, read_version
from tests.support.errors import larder_error
from tests.support.stores import RecordingStore, UnconditionalStore, keys_of

FILE = CacheFile(
    f"segments/{'4' * 32}/caches/{'7' * 32}/p",
    1,
    "5" * 64,
    "6" * 64,
    1,
    segment="4" * 32,
    split="train",
)
VERSION = VersionDocument(
    dataset="d",
    id="1" * 32,
    digest="2" * 64,
    inputs="3" * 64,
    segments=(SegmentUse("4" * 32),),
    splits={"train": SplitFacts(1, 1, 2048, (f"segments/{'4' * 32}/shards/train/d.tar",))},
    classes=("a", "ü"),
    files=(),
    cache=CacheFacts("encoded", {"train": (FILE,)}),
)


def test_the_first_to_publish_a_version_wins(root):
    assert read_version(root, VERSION.id) is None
    assert publish_document(root, VERSION) == VERSION
    assert publish_document(root, replace(VERSION, inputs="9" * 64)) == VERSION
    assert read_version(root, VERSION.id) == VERSION


def test_the_first_to_publish_a_cache_wins(root):
    cache = CacheDocument("d", FILE.segment, "7" * 32, "encoded", {"train": FILE})
    assert read_cache(root, cache.segment, cache.id) is None
    assert publish_document(root, cache) == cache
    other = replace(cache, files={"train": replace(FILE, sha256="8" * 64)})
    assert publish_document(root, other) == cache
    assert read_cache(root, cache.segment, cache.id) == cache


@pytest.mark.parametrize("refuses", [False, True])
def test_the_first_to_publish_wins_where_conditions_are_not_kept(root, refuses):
    """The document is looked for right before it is written."""
    store = RecordingStore(UnconditionalStore(root, refuses=refuses))
    publish_document(store, VERSION, if_absent=False)
    later = replace(VERSION, inputs="9" * 64)
    assert publish_document(store, later, if_absent=False) == VERSION
    assert [call.key for call in store.writes] == [layout.version_key(VERSION.id)]
    assert read_version(root, VERSION.id) == VERSION


def test_a_document_that_is_longer_than_what_is_read_is_not_published(root):
    """It stood there, and every run from then on found it damaged."""
    long = replace(VERSION, classes=("a" * DOCUMENT_BYTES,))
    with larder_error("run.limit"):
        publish_document(root, long)
    assert keys_of(root) == []


def test_a_version_has_no_segment_twice():
    """Verify has the documents, shards and caches of a version by segment."""
    data = seal(replace(VERSION, segments=VERSION.segments * 2))
    with larder_error("damage.manifest"):
        parse_document(VersionDocument, data, "x")


def test_keys_of_the_layout_are_pinned():
    assert layout.dataset_prefix("d") == "larder/d/"
    assert layout.shard_key("s", "train", "n.tar") == "segments/s/shards/train/n.tar"
    assert layout.segment_key("s") == "segments/s/segment.json"
    assert layout.version_key("v") == "versions/v/version.json"
    assert layout.tag_key("latest") == "tags/latest.json"
    sha256, short = "f" * 64, "f" * 16
    assert layout.replaced_key("tags/a.json", "0f") == "work/replaced/tags/a.json-0f"
    assert layout.index_key("s", "sources", sha256) == f"segments/s/index/sources-{short}.parquet"
    assert layout.cache_key("s", "c") == "segments/s/caches/c/cache.json"
    file = layout.cache_file_key(layout.cache_place("s", "c", "train"), sha256)
    assert file == f"segments/s/caches/c/train-{short}.mdb"
    assert layout.omitted_key("v", sha256) == f"versions/v/manifests/omitted-{short}.npy"
    assert layout.list_key("v", "train", sha256) == f"versions/v/lists/train-{short}.txt"


CACHE = CacheDocument("d", FILE.segment, "7" * 32, "encoded", {"train": FILE})
OTHER = "9" * 32


@pytest.mark.parametrize(
    ("document", "key", "read"),
    [
        (VERSION, layout.version_key(OTHER), lambda root: read_version(root, OTHER)),
        (CACHE, layout.cache_key(OTHER, CACHE.id), lambda root: read_cache(root, OTHER, CACHE.id)),
        (
            CACHE,
            layout.cache_key(CACHE.segment, OTHER),
            lambda root: read_cache(root, CACHE.segment, OTHER),
        ),
    ],
)
def test_a_document_at_the_key_of_another_is_damage(document, key, read, root):
    root.put(key, seal(document))
    with larder_error("damage.manifest", f"{root.url}{key}"):
        read(root)
    job = SimpleNamespace(dataset=SimpleNamespace(name="d"))
    reader = DocumentReader(job, root, NullProgress())
    assert reader.document(type(document), key) is None
    assert [each.path for each in reader.findings] == [key]
    root.put(document.key, seal(document))
    assert reader.document(type(document), document.key) == document


def test_a_document_whose_files_are_missing_is_not_written(root):
    def check():
        raise LookupError

    with pytest.raises(LookupError):
        publish_document(root, VERSION, check=check)
    assert keys_of(root) == []
