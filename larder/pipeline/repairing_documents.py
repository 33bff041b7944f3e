"""Restores damaged documents to the same bytes: each contains the digest that proves them.

A document with a flipped bit is found by trying: the digest in it accepts the right bytes and no
others. One that is lost is written again where something else says all that was in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from larder.errors import DamageError, NotFoundError
from larder.manifest.digest import canonical_json, sha256_hex
from larder.pipeline.job import listed
from larder.pipeline.repairing_files import Repair
from larder.pipeline.repairing_segments import segment_again
from larder.pipeline.repairing_versions import version_again
from larder.pipeline.verifying_job import Inspected, VerifyJob, readable
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    CacheDocument,
    CacheFile,
    VersionDocument,
    parse_document,
    seal,
    unseal,
)
from larder.versions.identity import cache_id
from larder.versions.publish import read_optional
from larder.versions.tags import TAG, Tag

__all__ = ["repair_document", "restored"]

_MOST_BYTES = 256 << 10
"""Longer documents are not tried bit by bit: half a minute at this length."""

_SHOWN = 5

_MARKER = b'"self_sha256":"'

_LOST = (
    "restore it; or delete it and repair again, which publishes it if the source has not changed"
)

_OTHER = "use the Larder that wrote it, or a newer one"

_PREPARE = "delete it and prepare the dataset again, which writes it if the source has not changed"


def repair_document(
    job: VerifyJob, root: Store, inspected: Inspected, path: str, *, trial: bool
) -> Repair:
    """Restore a tag, version.json, segment.json or cache.json.

    Args:
        job: The verification.
        root: The dataset's root.
        inspected: The version, as far as it is known.
        path: The document.
        trial: Whether nothing is written.
    """
    data = readable(root, path)
    right = restored(data) if data else None
    message = "restored: its own digest proves the bytes"
    if right is not None and not _is_of_path(right, path):
        right = None
    elif right is not None and right == data:
        return Repair(path, False, f"its digest proves that it was written like this; {_OTHER}")
    if right is None:
        right, message = _written_again(job, root, inspected, path)
    if right is None:
        return Repair(path, False, message)
    if not trial:
        root.put(path, right)
    return Repair(path, True, message)


def restored(data: bytes) -> bytes | None:
    """The document that differs from some bytes by one bit or at its end; None if there is none.

    Args:
        data: A document, possibly damaged.
    """
    for candidate in _candidates(data):
        try:
            plain = unseal(candidate, "")
        except DamageError:
            continue
        return seal(plain)
    return None


def _candidates(data: bytes) -> Iterator[bytes]:
    yield data
    yield data.rstrip(b"\n") + b"}"
    yield data[: data.rfind(b"}") + 1]
    found = _with_right_digest(data)
    if found is not None:
        yield found
    for place in range(len(data)) if len(data) <= _MOST_BYTES else ():
        for bit in range(8):
            byte = data[place] ^ 1 << bit
            if byte < 0x20 and byte != 0x0A:
                continue  # not in canonical JSON
            candidate = b"%b%c%b" % (data[:place], byte, data[place + 1 :])
            start = candidate.find(_MARKER)
            if start >= 0 and _proves_itself(candidate, start + len(_MARKER)):
                yield candidate


def _proves_itself(data: bytes, start: int) -> bool:
    """Whether the digest that begins at a place is that of the rest; much faster than parsing."""
    before, after = data[: start - len(_MARKER)], data[start + 64 :].removesuffix(b"\n")
    body = before + after.removeprefix(b'",')
    if after == b'"}':  # it is the last key
        body = before.removesuffix(b",") + b"}"
    return sha256_hex(body).encode() == data[start : start + 64]


def _with_right_digest(data: bytes) -> bytes | None:
    """If nothing but one bit of the digest itself is wrong: the document with the right one."""
    try:
        plain = json.loads(data)
        said = plain.pop("self_sha256")
        right = sha256_hex(canonical_json(plain))
        pairs = zip(said, right, strict=True)
        different = sum(one != other for one, other in pairs)
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return None
    return canonical_json({**plain, "self_sha256": right}) if different == 1 else None


def _is_of_path(data: bytes, path: str) -> bool:
    """Whether a document is the one that belongs to a path."""
    plain, names = json.loads(data), path.split("/")
    if names[0] == "tags":
        return isinstance(plain.get("version"), str)
    if names[-1] == "cache.json":
        return (plain.get("segment"), plain.get("id")) == (names[1], names[3])
    return bool(plain.get("id") == names[1])


def _written_again(
    job: VerifyJob, root: Store, inspected: Inspected, path: str
) -> tuple[bytes | None, str]:
    """The document from what else is known, and what it was made from; or why it is not."""
    names = path.split("/")
    found: tuple[bytes | None, str] | None = _twin(root, path)
    if found is None and names[0] == "tags":
        found = _tag(job, root, inspected, path)
    elif found is None and names[-1] == "version.json":
        found = _version_document(job, root, names[1])
    elif found is None and inspected.version is not None:
        if names[-1] == "cache.json":
            return _cache_document(root, inspected.version, names[1], names[3])
        return _segment_document(job, root, inspected.version, names[1])
    return found or (None, f"nothing else says all that was in it; {_LOST}")


def _twin(root: Store, path: str) -> tuple[bytes, str] | None:
    """The document in the place of another one."""
    names = path.split("/")
    if names[0] not in ("segments", "versions"):
        return None
    for info in listed(root, f"{names[0]}/"):
        if info.key.endswith(f"/{names[-1]}") and info.key != path:
            data = read_optional(root, info.key)
            right = restored_exactly(data)
            if right is not None and _is_of_path(right, path):
                return right, f"copied from {info.key}"
    return None


def restored_exactly(data: bytes | None) -> bytes | None:
    """A document that is not damaged; else None."""
    try:
        return seal(unseal(data or b"", ""))
    except DamageError:
        return None


def _cache_document(
    root: Store, version: VersionDocument, segment: str, cache: str
) -> tuple[bytes | None, str]:
    """cache.json from version.json, and from the receipts of splits that no version lists."""
    facts = version.cache
    if facts is None or cache_id(segment, facts.kind, facts.decoders) != cache:
        return None, f"version.json does not say what was in it; restore it, or {_PREPARE}"
    files = {
        file.split: file for own in facts.splits.values() for file in own if file.segment == segment
    }
    for info in listed(root, layout.cache_work_prefix(segment, cache)):
        try:
            plain = unseal(bytes(root.get(info.key)), info.key)
            plain.pop("etag", "")
            file = CacheFile(**plain)
        except (DamageError, NotFoundError, TypeError):
            continue
        files.setdefault(file.split, file)
    document = CacheDocument(
        version.dataset, segment, cache, facts.kind, files, decoders=facts.decoders
    )
    return seal(document), "written again from version.json"


def _version_document(job: VerifyJob, root: Store, version: str) -> tuple[bytes | None, str]:
    """version.json, if segments that are still there lead to its ID."""
    document = version_again(job, root, version)
    if isinstance(document, str):
        return None, f"it cannot be written again: {document}; {_LOST}"
    return seal(document), "written again: its segments lead to its ID"


def _segment_document(
    job: VerifyJob, root: Store, version: VersionDocument, segment: str
) -> tuple[bytes | None, str]:
    """segment.json, if the options and the plan that are still there lead to its ID."""
    try:
        document = segment_again(job.dataset, root, version, segment)
    except (DamageError, NotFoundError) as error:
        return None, f"a manifest has to be repaired first: {error.message}"
    if document is not None:
        return seal(document), "written again from version.json and the manifests"
    return (
        None,
        f"the options or the plan that it was made by have changed; restore it, or {_PREPARE}",
    )


def _tag(job: VerifyJob, root: Store, inspected: Inspected, path: str) -> tuple[bytes | None, str]:
    """A tag, if it can have named one version only, or if the user names the version."""
    if job.by_id and inspected.version is not None and path == layout.tag_key(TAG):
        return _naming(inspected.version), "it names the version that was asked for"
    infos = [info for info in listed(root, "versions/") if info.key.endswith("/version.json")]
    if len(infos) == 1:
        (info,) = infos
        data = read_optional(root, info.key)
        try:
            version = parse_document(VersionDocument, data or b"", info.key)
        except DamageError:
            return None, "the only version is damaged, too"
        return _naming(version), f"written again from {info.key}"
    if not infos:
        return None, "no version has its document any more; restore that first"
    infos.sort(key=lambda info: info.modified_us, reverse=True)
    ids = [info.key.split("/")[1] for info in infos]
    more = f" and {len(ids) - _SHOWN:,} more" if len(ids) > _SHOWN else ""
    named = f"nothing else says which of {len(ids)} versions it named"
    if path != layout.tag_key(TAG):
        return None, f"{named}; restore it, or delete it"
    return None, (
        f"{named}: {', '.join(ids[:_SHOWN])}{more}, the newest first; choose one: --version ID"
        " --repair makes the tag name it; or restore it"
    )


def _naming(version: VersionDocument) -> bytes:
    return seal(asdict(Tag(version.id, version.inputs)))
