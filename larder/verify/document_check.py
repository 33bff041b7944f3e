"""Reads the tags and documents of a dataset again, and notes their damage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from larder.errors import ConfigError, DamageError, NotFoundError, ObjectError
from larder.manifest.sealed import seal, unseal
from larder.names import ID
from larder.progress import Progress
from larder.store.base import Store
from larder.store.own_files import listed, published_file_errors, read_document
from larder.units import format_names
from larder.verify.verify_job import MISSING, Finding, Role, VerifyJob, is_broken, readable
from larder.versions import layout
from larder.versions.documents import FORMATS, VersionDocument, parse_document
from larder.versions.tags import TAG, one_of, tag_of

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

    def document(self, kind: Any, key: str, **names: str) -> Any:
        """Read a document of a kind, dataset and names; None, with a finding, if it is damaged."""
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
        names["dataset"] = self.job.dataset.name
        if {name: getattr(document, name) for name in names} != names:
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
        if is_id(name) and not any(True for _ in listed(self.root, layout.version_prefix(name))):
            raise self._missing(name, tags)
        if TAG not in tags and (is_id(name) or tags.get(name)):
            self.note(layout.tag_key(TAG), "tag", "damage.size", MISSING)
        if is_id(name):
            return name
        if tags.get(name):
            return tags[name]
        versions = whole_versions(self.root)
        if name not in tags and (id_ := one_of(self.root, versions, name)):
            return id_
        if name not in tags and not (name == TAG and any(map(self._is_published, versions))):
            raise self._missing(name, tags, stopped=bool(versions))
        key = layout.tag_key(name)
        damage = [each for each in self.findings if each.path == key]
        self.findings = [each for each in self.findings if each.path != key]
        message = damage[0].message if damage else MISSING
        message += f"; nothing else says which version it named: {_choice(versions)}; "
        choose = "choose one: --version ID --repair makes the tag name it"
        message += choose if name == TAG else "restore it, or delete it"
        self.note(key, "tag", damage[0].code if damage else "damage.size", message)
        return ""

    def _is_published(self, version: str) -> bool:
        """Whether anything is at the key of version.json, damaged or not."""
        return any(True for _ in listed(self.root, layout.version_key(version)))

    def _missing(self, name: str, tags: dict[str, str], *, stopped: bool = False) -> ConfigError:
        message = f"there is no version or tag {name!r}"
        hint = "prepare it first"
        if tags:
            hint = f"the tags are {', '.join(sorted(tags))}; or give the ID of a version"
        elif stopped:
            message += ": a run was stopped before it published one"
            hint = "prepare the dataset again: that goes on where it was stopped"
        return ConfigError("version.missing", message, where=self.root.url, hint=hint)


def _kind(format_: object) -> str:
    """Return ``larder-version`` of ``larder-version-2``: newer documents are left alone."""
    return str(format_).rpartition("-")[0]


def is_id(version: object) -> bool:
    return isinstance(version, str) and ID.allows(version)


def whole_versions(root: Store) -> dict[str, bool]:
    """Return by ID, newest first, whether each version has its document."""
    times: dict[str, int] = {}
    for info in listed(root, "versions/"):
        version = info.key.split("/")[1]
        if is_id(version):
            times[version] = max(times.get(version, 0), info.modified_us)
    versions = {}
    for version in sorted(times, key=times.__getitem__, reverse=True):
        key = layout.version_key(version)
        try:
            document = parse_document(VersionDocument, readable(root, key) or b"", key)
            versions[version] = document.id == version
        except DamageError:
            versions[version] = False
    return versions


def _choice(versions: dict[str, bool]) -> str:
    """Describe the versions that a lost tag may have named, for people."""
    whole = [version for version, has_document in versions.items() if has_document]
    lost = [version for version, has_document in versions.items() if not has_document]
    names = format_names(whole, _SHOWN_VERSIONS) if whole else "none"
    message = f"versions that can be read, the newest first: {names}"
    return (
        f"{message}; {format_names(lost, _SHOWN_VERSIONS)} lost version.json" if lost else message
    )
