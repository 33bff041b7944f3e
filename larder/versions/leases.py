"""Leases, which protect versions and segments from cleaning, and tombstones, which announce a
clean.

The holder writes a lease before it looks for tombstones. A clean writes its ``cleaner`` into the
tombstone before it looks for leases. So of a holder and a clean that do this at once, at least one
sees the other, whatever their clocks say. docs/design/007-cleaning.md has the protocol.
"""

from __future__ import annotations

import platform
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, NamedTuple, TypeVar

from larder.errors import (
    ConfigError,
    LarderError,
    NotFoundError,
    PreconditionError,
    StoreError,
    SupersededError,
)
from larder.manifest.sealed import read_sealed, seal
from larder.names import FILE, ID, STORED, HexId, TextRule
from larder.store import object_url
from larder.store.base import ObjectInfo, Store
from larder.store.own_files import listed, published_file_errors, read_document, read_optional
from larder.store.permissions import PROBE, permission
from larder.versions import layout
from larder.versions.publish import KEPT, read_conditions

T = TypeVar("T")

DAY_US = 24 * 3600 * 1_000_000
RUN_DAYS = 7
"""Duration of a run's lease, which the run renews when it publishes, and deletes when it ends."""
CONFIG_DAYS = 30
MAX_DAYS = 3650
RUN = "run-"
CONFIG = "config-"
"""Prefixes of the names of the leases of runs, and of emitted configs."""

_CACHE = f"/(?:work/)?caches/{ID.regex}"
_UNIT = f"(?:versions|segments)/{ID.regex}|segments/{ID.regex}{_CACHE}"
UnitPrefix = Annotated[str, TextRule("a unit", f"{_UNIT}|{layout.REPLACED_PREFIX}{STORED.regex}")]
"""A unit that a clean may delete: version, segment, cache, receipts of a cache, replaced file."""

LEASE_FORMAT = "larder-lease-1"
TOMBSTONE_FORMAT = "larder-tombstone-1"


@dataclass(frozen=True, slots=True)
class Lease:
    """leases/NAME.json: versions and segments that must not be cleaned.

    Attributes:
        holder: Description of the owner, such as ``a run on HOST``.
        days: Duration, from the time of writing by the store's clock.
        versions: IDs of versions, which keep the segments that they name.
        segments: IDs of segments, also of one that is being built.
    """

    holder: str
    days: int
    versions: tuple[HexId, ...] = ()
    segments: tuple[HexId, ...] = ()
    format: str = LEASE_FORMAT

    def check(self) -> None:
        if not 1 <= self.days <= MAX_DAYS:
            raise ValueError(f"days is not from 1 to {MAX_DAYS:,}")


class NamedLease(NamedTuple):
    name: str
    lease: Lease
    written_us: int

    @property
    def until_us(self) -> int:
        return self.written_us + self.lease.days * DAY_US


@dataclass(frozen=True, slots=True)
class Tombstone:
    """tombstones/RANDOM.json: units that a clean has announced, and deletes once it has a
    ``cleaner``.

    ``prefixes`` are of versions, segments, caches and their work, without the last ``/``.
    """

    prefixes: tuple[UnitPrefix, ...]
    cleaner: str = ""
    format: str = TOMBSTONE_FORMAT


class NamedTombstone(NamedTuple):
    key: str
    tombstone: Tombstone
    info: ObjectInfo


def read_leases(root: Store, kind: str = "") -> Iterator[NamedLease]:
    """Yield all leases, or those of a kind such as `RUN`, including expired ones."""
    for info, lease in _documents(root, f"{layout.LEASES_PREFIX}{kind}", Lease, LEASE_FORMAT):
        name = info.key.removeprefix(layout.LEASES_PREFIX).removesuffix(".json")
        yield NamedLease(name, lease, info.modified_us)


def running_seconds(root: Store, now_us: int) -> float | None:
    """Return how long ago the first run in progress took its lease; None if no run has one.

    Never negative: a lease may be newer than ``now_us``. An unknown time counts as very long ago.
    """
    since = [each.written_us for each in read_leases(root, RUN) if now_us < each.until_us]
    return abs(now_us - min(since)) / 1e6 if since else None


def read_tombstones(root: Store) -> Iterator[NamedTombstone]:
    for info, tombstone in _documents(root, layout.TOMBSTONES_PREFIX, Tombstone, TOMBSTONE_FORMAT):
        yield NamedTombstone(info.key, tombstone, info)


def _documents(
    root: Store, prefix: str, kind: type[T], format_: str
) -> Iterator[tuple[ObjectInfo, T]]:
    for info in listed(root, prefix):
        name = info.key.removeprefix(prefix)
        if not (FILE.allows(name) and name.endswith(".json")):
            continue
        hint = "restore it, or delete it if nobody needs it"
        with suppress(NotFoundError):  # it was deleted meanwhile
            with published_file_errors():
                info = root.head(info.key)
                data = read_document(root, info.key)
            yield info, read_sealed(kind, data, object_url(root.url, info.key), format_, hint=hint)


def store_now_us(root: Store) -> int:
    """Return the store's time, from a small object that is written and deleted for this."""
    key = f"{layout.PROBE_PREFIX}{secrets.token_hex(8)}"
    with permission(root, "storage", "put", "delete"), published_file_errors():
        root.put(key, PROBE)
        now_us = root.head(key).clock_us
        root.delete(key)
    if not now_us:
        message = "the store does not say when an object was written, so nothing counts as old"
        hint = "remove what is not needed with the tools of the store"
        raise StoreError("store.refused", message, where=root.url, hint=hint)
    return now_us


class Claim(NamedTuple):
    """A lease to be written, and the documents that must exist for it."""

    lease: Lease
    documents: tuple[str, ...] = ()
    name: str = ""

    @staticmethod
    def of_run(
        versions: Iterable[str], segments: Iterable[str] = (), documents: Iterable[str] = ()
    ) -> Claim:
        """Make the claim that a run holds until it ends."""
        holder = f"a run on {platform.node() or 'a machine'}"
        lease = Lease(holder, RUN_DAYS, tuple(versions), tuple(segments))
        return Claim(lease, tuple(documents), f"{RUN}{secrets.token_hex(8)}")

    def take(self, root: Store, etag: str | None = None) -> None:
        """Write the lease, or renew it.

        SupersededError (``version.cleaned``): a clean deletes or has deleted a claimed unit.

        Given an ``etag``, replace only the lease with that etag: PreconditionError or NotFoundError
        if it was replaced or dropped. Only a refusal deletes a lease that is renewed.
        """
        with published_file_errors():
            info = root.put(layout.lease_key(self.name), seal(self.lease), if_match=etag)
        try:
            self._check(root)
        except LarderError as error:
            if etag is None or isinstance(error, SupersededError):
                self.give_back(root, etag and info.etag)
            raise

    def _check(self, root: Store) -> None:
        names = {*map(layout.version_prefix, self.lease.versions)}
        names |= {*map(layout.segment_prefix, self.lease.segments)}
        for _, tombstone, _ in read_tombstones(root):
            for prefix in tombstone.prefixes if tombstone.cleaner else ():
                if f"{prefix}/".startswith(tuple(names)):
                    hint = "once larder clean has ended, run again; if it was killed, run it again"
                    message = f"a clean is deleting {prefix}"
                    raise SupersededError("version.cleaned", message, where=root.url, hint=hint)
        for key in self.documents:
            try:
                root.head(key)
            except NotFoundError:
                where = object_url(root.url, key)
                message = "a clean has deleted it since this run looked"
                raise SupersededError(
                    "version.cleaned", message, where=where, hint="run again"
                ) from None

    def give_back(self, root: Store, etag: str | None = None) -> None:
        """Delete the lease, if it has that etag. A lease that cannot be deleted expires."""
        with suppress(LarderError):
            root.delete(layout.lease_key(self.name), if_match=etag)


@contextmanager
def claimed(root: Store, claim: Claim) -> Iterator[None]:
    """Hold a new claim until the block ends."""
    try:
        claim.take(root)
    except KeyboardInterrupt:
        claim.give_back(root)
        raise
    try:
        yield
    finally:
        claim.give_back(root)


def config_name(cluster: str, version: str) -> str:
    return f"{CONFIG}{cluster}-{version}"


def renew_configs(root: Store, version: str, now_us: int) -> None:
    """Renew the existing leases of a version's configs that are older than a day.

    A lease that this machine's clock puts in the future is renewed too. A lease that is dropped or
    written meanwhile is left alone. Without conditional writes, the second of two concurrent
    writers wins. Refused like `Claim.take`, and if the storage may not be listed and written.
    """
    for info in listed(root, f"{layout.LEASES_PREFIX}{CONFIG}"):
        name = info.key.removeprefix(layout.LEASES_PREFIX).removesuffix(".json")
        if name.endswith(f"-{version}") and not 0 <= now_us - info.modified_us < DAY_US:
            where = object_url(root.url, info.key)
            conditions = read_conditions(root) or KEPT
            with suppress(PreconditionError, NotFoundError):
                data = read_document(root, info.key, if_match=info.etag)
                lease = read_sealed(Lease, data, where, LEASE_FORMAT, hint="")
                claim = Claim(lease, (layout.version_key(version),), name)
                claim.take(root, info.etag if conditions.if_match else None)


def claim_version(version: str) -> Claim:
    """Make the claim of a command that points a tag or a config at a version."""
    return Claim.of_run([version], documents=[layout.version_key(version)])


def drop_lease(root: Store, name: str) -> None:
    """Delete a lease; ``version.missing`` if no lease has that name."""
    key = layout.lease_key(name)
    if not FILE.allows(name) or read_optional(root, key) is None:
        message, hint = f"there is no lease {name!r}", "larder lease DATASET shows them"
        raise ConfigError("version.missing", message, where=root.url, hint=hint)
    with published_file_errors():
        root.delete(key)
