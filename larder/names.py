"""Rules for names, IDs, digests and paths, in the input of users and in documents that are read.

Any writer to a bucket can write documents and indexes. So every field of a document that becomes a
part of a path or of a config has one of these types; `larder.manifest.sealed` checks the field when
the document is read. Columns are checked by the same rules, where they are read.
"""

from __future__ import annotations

import re
from typing import Annotated, NamedTuple

NAME_REGEX = "[a-z0-9][a-z0-9_-]{0,62}"
SPLIT_REGEX = "[A-Za-z0-9][A-Za-z0-9_-]{0,62}"
_FILE = "[A-Za-z0-9][A-Za-z0-9._-]{0,199}"
_ID = "[0-9a-f]{32}"
_RANGE = r"\{[0-9]{1,9}\.\.[0-9]{1,9}\}"
_FILES = f"(?:{_FILE})?(?:{_RANGE}[A-Za-z0-9._-]*)?"


class TextRule(NamedTuple):
    """A rule for texts: ``regex`` matches a whole text, in ``re`` and RE2; ``noun`` names it."""

    noun: str
    regex: str

    def allows(self, text: str) -> bool:
        return re.fullmatch(self.regex, text) is not None


ID = TextRule("an ID of 32 hex digits", _ID)
SHA256 = TextRule("a digest of 64 hex digits", "[0-9a-f]{64}")
NAME = TextRule("a valid name", NAME_REGEX)
SPLIT = TextRule("the name of a split", SPLIT_REGEX)
FILE = TextRule("the name of a file", _FILE)
PATH = TextRule("a path below a segment or a version", f"(?:segments|versions)/{_ID}(?:/{_FILE})+")
STORED = TextRule("a path below the root", f"(?:_?{_FILE}/)*{_FILE}")
PATTERN = TextRule("a path of shards", f"segments/{_ID}/shards/{SPLIT_REGEX}/{_FILES}")
DELIVERED = TextRule("a path below the dataset's root", f"(?:{_FILE}/)*{_FILES}")
"""A path, a prefix or a pattern in a config, with nothing special to a shell or to a reader, such
as WebDataset's ``pipe:`` and ``::``.
"""

MAX_NUMBER = 1 << 53
"""More than the bytes or samples of any file, and small enough to add several."""

HexId = Annotated[str, ID]
Digest = Annotated[str, SHA256]
PlainName = Annotated[str, NAME]
"""Name of a dataset, or of a kind or role of files."""
SplitName = Annotated[str, SPLIT]
FileName = Annotated[str, FILE]
"""Name of a shard or another file, without its folder."""
FilePath = Annotated[str, PATH]
"""Path below the dataset's root."""
StoredPath = Annotated[str, STORED]
"""Path below the root of a dataset, including its work, or of a copy."""
ShardPattern = Annotated[str, PATTERN]
"""The paths of some shards: one numeric range in braces at most, and nothing special in a shell or
to a reader.
"""
