"""The names of members as keys: which are unsafe, and which are archives themselves. Pure."""

from __future__ import annotations

import re

from larder.source.expand.tar_members import TarMember

ARCHIVE = r"[^/]\.tar$"
"""What the keys of archives end in, in upper or lower case."""

COMPRESSED_ARCHIVE = r"[^/]\.(?:tar\.(?:gz|bz2|xz|zst|lz4|lzma|z|br)|tgz|tbz2?|txz|tzst|taz|tlz)$"

_ARCHIVE = re.compile(ARCHIVE, re.IGNORECASE)
_COMPRESSED = re.compile(COMPRESSED_ARCHIVE, re.IGNORECASE)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def is_archive(key: str) -> bool:
    """Whether a key is that of a tar archive: by its name, which ends in ``.tar``."""
    return _ARCHIVE.search(key) is not None


def is_compressed_archive(key: str) -> bool:
    """Whether a key is that of an archive that cannot be read by ranges."""
    return _COMPRESSED.search(key) is not None


def member_name(raw: bytes) -> str:
    r"""A member's name, without ``./`` before it; what is not UTF-8 becomes ``\xff``."""
    name = raw.decode("utf-8", "backslashreplace")
    while name.startswith("./"):
        name = name[2:].lstrip("/")
    return name


def member_problem(member: TarMember, name: str) -> str | None:
    """Why a member, not a folder, cannot be listed as an object, as a clause; None if it can."""
    return _bad_name(member.name, name) or _bad_kind(member)


def _bad_name(raw: bytes, name: str) -> str | None:
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "the name of the member is not UTF-8"
    if _CONTROL.search(name):
        return "the name of the member contains a control character"
    if name.startswith("/"):
        return "the name of the member begins with /"
    segments = name.split("/")
    if not segments[-1]:
        return "the name of the member is empty or ends in /"
    for segment, noun in (("", "an empty segment"), (".", "a segment ."), ("..", "a segment ..")):
        if segment in segments:
            return f"the name of the member contains {noun}"
    return None


def _bad_kind(member: TarMember) -> str | None:
    if member.kind != "file":
        return f"the member is a {member.kind}"
    if is_compressed_archive(member.name.decode()):
        return "a compressed archive cannot be read by ranges"
    return None
