"""Where a URL points, how it is reached, and whether the source and the storage overlap."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from larder.config.urls import NO_CREDENTIALS, holds_url_with_credentials, parse_url, server_of
from larder.errors import ConfigError

if TYPE_CHECKING:
    # Imports pydantic, which a light install does not have.
    from larder.config.models import Location


GIVE_UP_SECONDS = 120.0
_SILENT_SHARE = 0.45


@dataclass(frozen=True, slots=True)
class Access:
    """How a store is reached. Credentials are named, never included.

    Attributes:
        endpoint: URL of an S3-compatible server other than AWS, or of a server that imitates GCS.
        role: ARN of the IAM role to assume.
        block: ``KIND/NAME`` of the Prefect block with the credentials.
        anonymous: Whether requests are not signed, for a public bucket.
        kms_key: The key that encrypts what is written; None leaves that to the bucket.
        project: The GCS project that is billed.
        give_up_seconds: A call fails after this long without an answer, including its repetitions.
    """

    endpoint: str | None = None
    region: str | None = None
    profile: str | None = None
    role: str | None = None
    block: str | None = None
    anonymous: bool = False
    requester_pays: bool = False
    kms_key: str | None = None
    project: str | None = None
    give_up_seconds: float = GIVE_UP_SECONDS

    @property
    def silence_seconds(self) -> float:
        """How long to wait for a byte of an answer: a call that hangs is repeated once."""
        return _SILENT_SHARE * self.give_up_seconds


DEFAULT_ACCESS = Access()


_STORE = re.compile(r"(?:s3|gs|gcs|file|https?|ftp):/", re.IGNORECASE)
"""The beginning of a URL that has lost a slash."""


def resolve_url(url: str, base: Path) -> str:
    """``url``, with a plain path made absolute, without ``..``, links kept.

    Relative paths start from ``base``, which for dataset and cluster files is the current
    directory, not the directory of the file. ``~/data`` starts from the home directory.
    """
    if parse_url(url).scheme:
        return url
    return os.path.abspath(base / _at_home(Path(url)))


def directory(path: Path, flag: str) -> Path:
    """A directory of this machine that a flag names, with ``~`` expanded.

    A shell expands it in ``--output ~/x``, but not in ``--output=~/x``. Relative paths stay
    relative. The URL of a store is refused, and so is a path with credentials, which would become
    part of names.
    """
    hint = "name a directory of this machine"
    if holds_url_with_credentials(str(path)):
        raise ConfigError("config.secret", NO_CREDENTIALS, where=flag, hint=hint)
    if _STORE.match(str(path)):
        raise ConfigError("config.path", "a URL is not allowed here", where=flag, hint=hint)
    return _at_home(path, flag)


def _at_home(path: Path, where: str = "") -> Path:
    try:
        return path.expanduser()
    except RuntimeError:
        hint = "write the full path, or ./ before a name that begins with ~"
        message = "no such home directory"
        raise ConfigError("config.path", message, where=where, hint=hint) from None


def check_overlap(
    source: Location, storage_url: str, *, storage_endpoint: str | None = None
) -> None:
    """Refuse a source inside the storage, or the reverse, with ``config.overlap``.

    The next run would list what Larder wrote as part of the source, or Larder would overwrite it.
    Directories are compared by their real paths, buckets by whole segments of the prefix:
    ``s3://b/data`` and ``s3://b/database`` do not overlap. Buckets at different
    endpoints never do; the caller has to fill in an endpoint that comes from the environment.
    """
    source_segments = _segments(source.url, source.access.endpoint)
    storage_segments = _segments(storage_url, storage_endpoint)
    shorter = min(len(source_segments), len(storage_segments))
    if source_segments[:shorter] != storage_segments[:shorter]:
        return
    if source_segments == storage_segments:
        relation = "the source and the storage are the same place"
    elif len(source_segments) < len(storage_segments):
        relation = f"the storage {storage_url} is inside the source {source.url}"
    else:
        relation = f"the source {source.url} is inside the storage {storage_url}"
    raise ConfigError(
        "config.overlap",
        relation,
        where="source.url",
        hint="give one of them a prefix or directory of its own",
    )


def is_inside(url: str, outer: str) -> bool:
    """Whether a URL or path is another one, or inside of it."""
    segments = _segments(outer)
    return _segments(url)[: len(segments)] == segments


def _segments(url: str, endpoint: str | None = None) -> tuple[str, ...]:
    """The place as segments; a place that contains it has the first of these.

    URLs are taken literally, without percent-decoding, as in `larder.store.open_store`.
    """
    scheme, rest = parse_url(url)
    if not scheme:
        return _directory(os.path.expanduser(rest))
    if scheme == "file":
        return _directory(rest)
    segments = (segment for segment in rest.split("/") if segment)
    return (scheme, server_of(endpoint) if endpoint else "", *segments)


def _directory(path: str) -> tuple[str, ...]:
    return ("file", *Path(os.path.normcase(os.path.realpath(path))).parts)
