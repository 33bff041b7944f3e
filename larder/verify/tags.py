"""The tags of a dataset, and the version that a verification is of."""

from __future__ import annotations

from larder.errors import ConfigError
from larder.pipeline.job import listed
from larder.pipeline.verifying_reader import DocumentReader
from larder.shards.inspected import MISSING
from larder.versions import layout
from larder.versions.tags import TAG

__all__ = ["read_tags", "version_id"]

_ID_DIGITS = frozenset("0123456789abcdef")


def read_tags(reader: DocumentReader) -> dict[str, str]:
    """By tag, the ID of the version that it names; empty if its document is damaged."""
    found = {}
    prefix = layout.tag_key("").removesuffix(".json")
    for info in listed(reader.root, prefix):
        name = info.key.removeprefix(prefix).removesuffix(".json")
        if "/" in name or info.key != layout.tag_key(name):
            message = "it is not a tag: move it elsewhere, or delete it"
            reader.found(info.key, "foreign", "damage.foreign", message)
            continue
        plain = reader.unsealed(info.key, "tag")
        version = plain.get("version") if plain else None
        found[name] = str(version) if _is_id(version) else ""
        if plain and not found[name]:
            reader.found(info.key, "tag", "damage.manifest", "it names no version")
        elif plain and not reader.exists(layout.version_key(found[name])):
            message = f"it names version {version}, which has no version.json"
            reader.found(info.key, "content", "damage.manifest", message)
    for path in reader.unlisted:
        name = path.removeprefix(prefix).removesuffix(".json")
        if path.startswith(prefix) and path == layout.tag_key(name):
            found[name] = ""
            reader.found(path, "tag", "damage.size", reader.missing_file(path))
    return found


def version_id(reader: DocumentReader, tags: dict[str, str]) -> str:
    """The ID of the version that is asked for; empty if damaged tags do not say which one it is.

    Raises:
        ConfigError: ``version.missing``: there is no such version or tag.
    """
    asked = reader.job.version
    if _is_id(asked):
        if not any(True for _ in listed(reader.root, layout.version_prefix(asked))):
            raise _missing(reader, asked, tags)
        if TAG not in tags:
            reader.found(layout.tag_key(TAG), "tag", "damage.size", MISSING)
        return asked
    if tags.get(asked):
        return tags[asked]
    only = {info.key.split("/")[1] for info in listed(reader.root, "versions/")}
    if asked not in tags and (asked != TAG or not only):
        raise _missing(reader, asked, tags)
    if asked not in tags:
        reader.found(layout.tag_key(asked), "tag", "damage.size", MISSING)
    return only.pop() if len(only) == 1 else ""


def _missing(reader: DocumentReader, asked: str, tags: dict[str, str]) -> ConfigError:
    hint = "prepare it first"
    if tags:
        hint = f"the tags are {', '.join(sorted(tags))}; or give the ID of a version"
    message = f"there is no version or tag {asked!r}"
    return ConfigError("version.missing", message, where=reader.root.url, hint=hint)


def _is_id(version: object) -> bool:
    return isinstance(version, str) and len(version) == 32 and set(version) <= _ID_DIGITS
