"""Whether what lies at the target is the source's object."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from uuid import uuid4

import pytest

from larder.copy.proof import CopiedObject, ObjectCopy, adopt
from larder.errors import NotFoundError, PreconditionError
from larder.store import open_store
from larder.store.base import Features, ObjectInfo, Reader
from larder.store.delegate import DelegatingStore

DATA = b"content" * 1000
CRC32C, SHA256 = "crc32c:12345678", "sha256:12345678"
MD5 = hashlib.md5(DATA, usedforsecurity=False).hexdigest()


class Described(DelegatingStore):
    """A store in memory that describes its objects as another kind of store would."""

    def __init__(self, *, etag_is_md5: bool = True, **described: object) -> None:
        super().__init__(open_store(f"memory://adopt-{uuid4().hex}"))
        self.etag_is_md5 = etag_is_md5
        self.described = described
        self.read: list[str] = []

    @property
    def features(self) -> Features:
        return replace(super().features, etag_is_md5=self.etag_is_md5)

    def head(self, key: str) -> ObjectInfo:
        usual = {"content_type": "binary/octet-stream", "metadata": {}}
        return super().head(key)._replace(**{**usual, **self.described})

    def open(
        self, key: str, *, offset: int = 0, length: int | None = None, if_match: str | None = None
    ) -> Reader:
        if length is None:
            self.read.append(key)
        real = self.inner.head(key).etag
        if if_match not in (None, real, self.described.get("etag")):
            raise PreconditionError("object.changed", "it changed", where=self.url + key)
        return super().open(key, offset=offset, length=length)

    def list(self, prefix: str = "", *, start_after: str = "") -> Iterator[list[ObjectInfo]]:
        for page in super().list(prefix, start_after=start_after):
            yield [self.head(info.key) for info in page]


def check(
    source: Described, target: Described, verify: str = "digest", there: bytes = DATA
) -> CopiedObject | None:
    source.put("key", DATA)
    target.put("to/key", there)
    return adopt(ObjectCopy(source, source.head("key"), target, "to/key"), verify)


def encrypted(etag: str = "0" * 32, **described: object) -> Described:
    """Its etags have the form of an MD5, and are none."""
    return Described(etag=etag, **described)


@pytest.mark.parametrize(
    ("source", "target", "how", "summed", "read"),
    [
        (Described(etag=MD5), Described(etag=MD5), "md5", False, []),
        (encrypted(checksum=CRC32C), Described(etag="x-2", checksum=CRC32C), "crc32c", True, []),
        (encrypted(checksum=SHA256), Described(etag="x-2", checksum=SHA256), "sha256", False, []),
        (Described(etag=MD5), Described(etag=f"{MD5}-3"), "md5", True, ["to/key"]),
        (encrypted(), Described(etag="a-3"), "crc32c", True, ["key", "to/key"]),
        (Described(etag=MD5), encrypted(), "md5", True, ["to/key"]),
    ],
    ids=["md5", "crc32c", "sha256", "parts", "no digest", "encrypted target"],
)
def test_a_copy_is_proved_by_what_is_known_and_else_read(source, target, how, summed, read):
    copy = check(source, target)
    assert (copy.key, copy.size_bytes, copy.check) == ("key", 7000, how)
    assert (copy.etag, copy.mirror_etag) == (source.described["etag"], target.described["etag"])
    assert (copy.checksum is not None) == summed
    assert [*source.read, *target.read] == read


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (encrypted(checksum=CRC32C), Described(etag="x-2", checksum="crc32c:87654321")),
        (encrypted(checksum=SHA256), Described(etag="x-2", checksum="sha256:87654321")),
        (Described(etag=MD5), Described(etag=f"{MD5}-3")),
        (encrypted(), Described(etag="a-3")),
        (Described(etag="a-3"), Described(etag="a-3")),
        (Described(etag=MD5, etag_is_md5=False), Described(etag=MD5)),
    ],
    ids=["crc32c", "sha256", "parts", "no digest", "etags of parts", "no MD5 by the store's word"],
)
def test_other_bytes_are_no_copy(source, target):
    assert check(source, target, there=DATA[:-1] + b"X") is None


def test_by_size_only_the_size_counts():
    source, target = Described(etag=MD5), Described(etag="a-3")
    copy = check(source, target, "size", there=bytes(7000))
    assert (copy.check, copy.checksum) == ("size", None)
    assert source.read == target.read == []
    assert check(source, target, "size", there=bytes(7001)) is None


def test_what_is_not_there_is_no_copy_and_what_is_gone_from_the_source_is_an_error():
    source, target = Described(), Described()
    source.put("key", DATA)
    info = source.head("key")
    assert adopt(ObjectCopy(source, info, target, "to/key"), "digest") is None
    target.put("to/key", DATA)
    source.delete("key")
    with pytest.raises(NotFoundError):
        adopt(ObjectCopy(source, info, target, "to/key"), "digest")


def test_an_empty_object_is_a_copy_of_an_empty_object():
    source, target = Described(), Described()
    source.put("key", b"")
    target.put("to/key", b"")
    assert adopt(ObjectCopy(source, source.head("key"), target, "to/key"), "digest")


@pytest.mark.parametrize(
    ("theirs", "ours", "same"),
    [
        ({"metadata": {"a": "1"}}, {"metadata": {"a": "2"}}, False),
        ({"metadata": {"a": "1"}}, {"metadata": {"a": "1"}}, True),
        ({}, {"metadata": {"left": "behind"}}, False),
        ({"content_type": "image/png"}, {}, False),
        ({"content_type": "image/png"}, {"content_type": "image/png"}, True),
        ({}, {"content_type": "application/octet-stream"}, True),
        ({}, {"content_type": "image/png"}, False),
    ],
)
def test_type_and_metadata_have_to_be_the_same(theirs, ours, same):
    copy = check(Described(etag=MD5, **theirs), Described(etag=MD5, **ours))
    assert (copy is not None) == same
