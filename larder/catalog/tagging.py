"""Shows, moves and deletes tags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from larder.catalog.stored_dataset import StoredDataset
from larder.errors import ConfigError
from larder.jobs.step_runner import Runner, Start
from larder.names import FILE, ID
from larder.store import object_url
from larder.store.base import Store
from larder.units import suggest
from larder.versions.leases import claim_version, claimed
from larder.versions.publish import probe_conditions
from larder.versions.runs import RunRecord, write_run
from larder.versions.tags import (
    TAG,
    Tag,
    delete_tag,
    move_tag,
    published_version,
    read_tag,
    tag_names,
)


@dataclass(frozen=True, slots=True)
class TagSettings:
    """Action on a tag: move to a ``version``, delete, or show.

    ``pin`` says whether the tag is pinned from then on. None leaves a tag as it is, and refuses to
    move a pinned tag.
    """

    place: StoredDataset
    name: str
    version: str | None = None
    delete: bool = False
    pin: bool | None = None

    def check(self) -> None:
        """Refuse contradictions, and names that no tag may have."""
        if self.delete and (self.version is not None or self.pin is not None):
            raise _refused("a tag is deleted or moved, not both", "leave out what is not meant")
        if self.delete and self.name == TAG:
            raise _refused(f"{TAG} is not deleted, as every run moves it", "move it instead")
        if not FILE.allows(self.name) or ID.allows(self.name):
            message = "a tag has letters, digits, and . _ - after the first, and is no ID"
            raise _refused(message, "choose another name")


def _refused(message: str, hint: str) -> ConfigError:
    return ConfigError("config.invalid_flag", message, hint=hint)


def tag(settings: TagSettings, runner: Runner, *, start: Start | None = None) -> dict[str, Any]:
    """Show, move or delete a tag; returns the JSON document.

    Refused: ``version.missing``, ``version.ambiguous``; ``version.pinned``: the tag is pinned;
    ``version.superseded``: the tag was moved meanwhile; ``version.cleaned``: the version is being
    deleted.
    """
    settings.check()

    def execute(runner: Runner) -> dict[str, Any]:
        document = _tag(settings)
        if document["status"] in ("moved", "deleted"):
            _record(settings, document, runner)
        return document

    return start(execute) if start else execute(runner)


def _record(settings: TagSettings, document: Mapping[str, Any], runner: Runner) -> None:
    before, after = document["moved_from"], document.get("version")
    record = RunRecord(
        dataset=settings.place.dataset,
        version=after or before,
        command="tag",
        flow_run=runner.flow_run,
        tag=document["tag"],
        before=before,
        after=after,
    )
    write_run(settings.place.open(), record)


def _tag(settings: TagSettings) -> dict[str, Any]:
    root, name = settings.place.open(), settings.name
    document: dict[str, Any] = {"dataset": settings.place.dataset, "storage": root.url}
    before = read_tag(root, name)
    if settings.delete:
        return document | {"status": "deleted", "tag": name, "moved_from": delete_tag(root, name)}
    moved = False
    if settings.version is not None:
        moved = _move(root, settings, before)
    elif before is None:
        message, hint = f"there is no tag {name!r}", suggest(name, tag_names(root), "tags")
        raise ConfigError("version.missing", message, where=root.url, hint=hint)
    elif settings.pin is not None:
        conditions = probe_conditions(root)
        named = before.version
        moved = move_tag(root, name, named, before.inputs, named, conditions, settings.pin)
    after = read_tag(root, name)
    if after is None:
        message = "the tag was deleted meanwhile"
        raise ConfigError("version.missing", message, where=object_url(root.url, name))
    return document | {
        "status": "moved" if moved else "current",
        "tag": name,
        "version": after.version,
        "pinned": after.pinned,
        "history": [entry.version for entry in reversed(after.history)],
        "moved_from": before.version if before and moved else None,
    }


def _move(root: Store, settings: TagSettings, before: Tag | None) -> bool:
    """Move a tag to a version, which a clean leaves alone meanwhile."""
    assert settings.version is not None, "it is to be moved"
    version = published_version(root, settings.place.dataset, settings.version)
    expected = before.version if before else None
    with claimed(root, claim_version(version.id)):
        to = version.id, version.inputs
        return move_tag(root, settings.name, *to, expected, probe_conditions(root), settings.pin)


def tag_lines(document: Mapping[str, Any]) -> list[str]:
    name, before = document["tag"], document["moved_from"]
    if document["status"] == "deleted":
        return [f"{name} deleted; it named {before}"]
    pinned = " (pinned)" if document["pinned"] else ""
    lines = [f"{name} names version {document['version']}{pinned}"]
    if document["status"] == "moved" and before not in (None, document["version"]):
        lines.append(f"  moved from {before}")
        if name == TAG and not document["pinned"]:
            lines.append("  the next larder prepare moves it on; --pin keeps it here")
    return lines
