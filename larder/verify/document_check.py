"""Reads the tags and documents of a dataset again, and notes their damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from larder.errors import DamageError, NotFoundError, ObjectError
from larder.manifest.sealed import seal, unseal
from larder.names import ID
from larder.progress import Progress
from larder.store.base import Store
from larder.store.own_files import listed, published_file_errors, read_document
from larder.units import format_names
from larder.verify.verify_job import MISSING, Finding, Role, VerifyJob, is_broken, readable
from larder.versions import layout
from larder.versions.documents import FORMATS, parse_document
from larder.versions.tags import TAG, missing_version, one_of, published_ids, tag_of

_SHOWN_VERSIONS = 5


@dataclass
class DocumentReader:
    """Reads documents, and notes their damage as findings."""

    job: VerifyJob
    root: Store
    progress: Progress
    findings: list[Finding] = field(default_factory=list)

    def note(self, path: str, role: Role, code: str, message: str) -> None:
        self.findings.append(Finding(path, role, code, message))

    def read(self, key: str, role: Role) -> bytes | None:
        """Read a small file; None, with a finding, if it cannot be read."""
        data = None
        try:
            data = read_document(self.root, key)
        except NotFoundError:
            self.note(key, role, "damage.size", MISSING)
        except DamageError as error:
            self.note(key, role, error.code, error.message)
        except ObjectError as error:
            if not is_broken(self.root, error):
                with published_file_errors():
                    raise
            message = f"the file cannot be read completely: {error.message}"
            self.note(key, role, "damage.size", message)
        self.progress.advance("inspect", objects=1, bytes=len(data or b""))
        return data

    def unsealed(self, key: str, role: Role) -> dict[str, Any] | None:
        """Read the fields of a sealed document; None, with a finding, if it is damaged."""
        data = self.read(key, role)
        if data is None:
            return None
        try:
            return unseal(data, key)
        except DamageError as error:
            self.note(key, role, error.code, error.message)
            return None

    def document(self, kind: Any, key: str) -> Any:
        """Read a document of the dataset; None, with a finding, if it is damaged."""
        plain = self.unsealed(key, "document")
        if plain is None:
            return None
        try:
            document = parse_document(kind, seal(plain), key)
        except DamageError as error:
            written = plain.get("format")
            newer = written != FORMATS[kind] and _kind(written) == _kind(FORMATS[kind])
            message = f"{error.message}; {error.hint}" if newer else error.message
            self.note(key, "content" if newer else "document", error.code, message)
            return None
        if (document.dataset, document.key) != (self.job.dataset.name, key):
            message = f"it is the document of {document.id} of dataset {document.dataset}"
            self.note(key, "document", "damage.manifest", message)
            return None
        return document

    def tags(self) -> dict[str, str]:
        """Return by tag the ID of its version; empty if the tag's document is damaged."""
        named = {}
        prefix = layout.TAGS_PREFIX
        for info in listed(self.root, prefix):
            name = info.key.removeprefix(prefix).removesuffix(".json")
            if "/" in name or info.key != layout.tag_key(name):
                message = "it is not a tag: move it elsewhere, or delete it"
                self.note(info.key, "foreign", "damage.foreign", message)
                continue
            plain = self.unsealed(info.key, "tag")
            named[name] = ""
            if plain is None:
                continue
            try:
                named[name] = tag_of(plain).version
            except ValueError as error:
                message = f"it names no version: {error}"
                self.note(info.key, "tag", "damage.manifest", message)
                continue
            if readable(self.root, layout.version_key(named[name])) is None:
                message = f"it names version {named[name]}, which has no version.json"
                self.note(info.key, "content", "damage.manifest", message)
        return named

    def version_id(self, tags: dict[str, str]) -> str:
        """Find the version's ID, else ``version.missing``; empty if its tag is lost."""
        name = self.job.version
        id_ = name if is_id(name) else tags.get(name)
        if is_id(name) and not any(True for _ in listed(self.root, layout.version_prefix(name))):
            raise missing_version(self.root, self.job.dataset.name, name)
        if id_ and TAG not in tags:
            self.note(layout.tag_key(TAG), "tag", "damage.size", MISSING)
        if id_:
            return id_
        versions = list(published_ids(self.root))
        if name not in tags:
            if id_ := one_of(self.root, versions, name):
                return id_
            if name != TAG or not versions:
                raise missing_version(self.root, self.job.dataset.name, name)
        key = layout.tag_key(name)
        damage = [each for each in self.findings if each.path == key]
        self.findings = [each for each in self.findings if each.path != key]
        message = damage[0].message if damage else MISSING
        message += "; nothing else says which version it named"
        if name == TAG:
            names = format_names(versions, _SHOWN_VERSIONS)
            message += f"; the versions are {names}" if names else "; none has a version.json"
        self.note(key, "tag", damage[0].code if damage else "damage.size", message)
        return ""


def _kind(format_: object) -> str:
    """Return ``larder-version`` of ``larder-version-2``: newer documents are left alone."""
    return str(format_).rpartition("-")[0]


def is_id(version: object) -> bool:
    return isinstance(version, str) and ID.allows(version)
