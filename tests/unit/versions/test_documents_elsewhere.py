"""Documents at the key of another, as any writer to a bucket can put them, and unfinished ones."""

from types import SimpleNamespace

import pytest

from larder.manifest.sealed import seal
from larder.progress import NullProgress
from larder.verify.document_check import DocumentReader
from larder.versions import layout
from larder.versions.documents import CacheDocument
from larder.versions.publish import publish_document, read_cache, read_version
from tests.support.errors import larder_error
from tests.support.stores import keys_of
from tests.unit.versions.test_publish import FILE, VERSION

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
