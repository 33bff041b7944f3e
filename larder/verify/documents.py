"""Reads the documents of a version again, and notes what is wrong with them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from larder.errors import DamageError, LarderError, NotFoundError, ObjectError
from larder.manifest.digest import canonical_json, sha256_hex
from larder.pipeline.findings import Finding, Role
from larder.pipeline.verifying_job import VerifyJob, is_broken
from larder.progress import Progress
from larder.shards.inspected import MISSING
from larder.store.base import Store
from larder.versions import layout
from larder.versions.documents import (
    MAKE_AGAIN,
    SegmentDocument,
    VersionDocument,
    parse_document,
    seal,
    unseal,
)
from larder.versions.publish import own_file_errors

__all__ = ["DocumentReader", "unreadable"]


@dataclass
class DocumentReader:
    """Reads documents.

    Attributes:
        job: The verification.
        root: The dataset's store.
        unlisted: What the listings cannot return; filled as they are read.
        progress: Reports progress of stage ``inspect``.
        findings: What was found so far.
    """

    job: VerifyJob
    root: Store
    unlisted: dict[str, ObjectError]
    progress: Progress
    findings: list[Finding] = field(default_factory=list)

    def found(self, path: str, role: Role, code: str, message: str, **more: Any) -> None:
        """Note what is wrong with a file."""
        self.findings.append(Finding(path, role, code, message, **more))

    def exists(self, key: str) -> bool:
        """Whether there is a file, readable or not."""
        try:
            self.root.head(key)
        except NotFoundError:
            return False
        except LarderError as error:
            if not is_broken(self.root, error):
                raise
        return True

    def missing_file(self, key: str) -> str:
        """The message that a file is missing, and why if that is known."""
        why = self.unlisted.get(key)
        return f"{MISSING}: {why.message}" if why else MISSING

    def _read(self, key: str, role: Role) -> bytes | None:
        """A document; None, with a finding, if it cannot be read."""
        data = None
        try:
            data = bytes(self.root.get(key))
        except NotFoundError:
            self.found(key, role, "damage.size", self.missing_file(key))
        except ObjectError as error:
            if not is_broken(self.root, error):
                with own_file_errors():
                    raise
            self.found(key, role, "damage.size", unreadable(error))
        self.progress.advance("inspect", objects=1, bytes=len(data or b""))
        return data

    def unsealed(self, key: str, role: Role) -> dict[str, Any] | None:
        """The fields of a sealed document; None, with a finding, if it is damaged."""
        data = self._read(key, role)
        if data is None:
            return None
        sha256 = sha256_hex(data)
        try:
            plain = unseal(data, key)
        except DamageError as error:
            self.found(key, role, error.code, error.message, sha256=sha256)
            return None
        if not _is_canonical(data):
            message = "the document is not written as it was published"
            self.found(key, role, "damage.digest", message, sha256=sha256)
        return plain

    def document(self, kind: Any, key: str) -> Any:
        """A document of this kind; None, with a finding, if it is damaged."""
        plain = self.unsealed(key, "document")
        if plain is None:
            return None
        try:
            return parse_document(kind, seal(plain), key)
        except DamageError as error:
            hint = "" if error.hint == MAKE_AGAIN else f"; {error.hint}"
            self.found(key, "document", error.code, f"{error.message}{hint}")
            return None

    def is_named(self, document: Any, id_: str) -> bool:
        """Whether a document is the one of its path, of this dataset; else there is a finding."""
        kind = type(document)
        own = {SegmentDocument: layout.segment_key, VersionDocument: layout.version_key}
        if (document.id, document.dataset) == (id_, self.job.dataset.name):
            return True
        key = own[kind](id_)
        message = f"it is the document of {document.id} of dataset {document.dataset}"
        self.found(key, "document", "damage.manifest", message)
        return False


def unreadable(error: ObjectError) -> str:
    """The message that a file cannot be read."""
    return f"the file cannot be read completely: {error.message}"


def _is_canonical(data: bytes) -> bool:
    """Whether a document is written as Larder writes it, to the byte; it has to be sealed."""
    return canonical_json(json.loads(data)) + b"\n" == data
