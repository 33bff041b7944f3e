"""One interface over directories, S3 and GCS; `open_store` opens a store.

- `base` is the contract, with `keys` and `etags`; `local`, `s3` and `gcs` implement it.
- `http` has the connections and `calls` interprets the answers. `buckets` is shared by the S3 and
  GCS stores, such as their accounts; `blocks` has credentials that are kept elsewhere.
- `delegate` is the base of wrapping stores: `retry`, the only place that repeats calls; `throttle`,
  which limits bytes per second; and `derived`, which reads listed ranges of objects.
- `interrupt` ends the waits of a stopped run; `permissions` names a missing permission.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from larder.config.urls import (
    GIVE_UP_SECONDS,
    Access,
    StoreUrl,
    check_endpoint,
    check_region,
    check_url,
    parse_url,
)
from larder.store.base import Buffer, Features, ObjectInfo, Reader, Store, Writer
from larder.store.keys import check_path_key, object_url
from larder.store.local.walk import OnUnlisted
from larder.store.retry import RetryPolicy, RetryStore

if TYPE_CHECKING:
    from larder.config.models.copy_config import CopyConfig  # imports pydantic
    from larder.config.models.locations import Location  # imports pydantic

__all__ = [
    "Access",
    "Buffer",
    "Features",
    "ObjectInfo",
    "OnUnlisted",
    "Reader",
    "RetryPolicy",
    "RetryStore",
    "Store",
    "Writer",
    "local_path",
    "object_url",
    "open_location",
    "open_store",
]

_DEFAULT_POLICY = RetryPolicy()


def _s3_store(url: StoreUrl, access: Access) -> Store:
    from larder.store.s3 import S3Store

    return S3Store(url.bucket, url.prefix, access)


def _gcs_store(url: StoreUrl, access: Access) -> Store:
    from larder.store.gcs import GcsStore

    return GcsStore(url.bucket, url.prefix, access)


OPENERS: dict[str, Callable[[StoreUrl, Access], Store]] = {"s3": _s3_store, "gs": _gcs_store}
"""Openers of stores other than directories, by scheme; see `larder.config.urls.EXAMPLES`."""


def open_store(
    url: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    profile: str | None = None,
    access: Access | None = None,
    retry: RetryPolicy | None = _DEFAULT_POLICY,
    max_bytes_per_second: float | None = None,
    unlisted: OnUnlisted | None = None,
) -> Store:
    """Open the store at a URL. Sends no request before the first call of the store.

    Args:
        url: ``s3://bucket/prefix``, ``gs://bucket/prefix``, ``file:///dir`` or a path; with or
            without a slash at the end. The URL is taken literally, without percent-decoding.
        endpoint: URL of an S3-compatible server other than AWS; by default ``AWS_ENDPOINT_URL_S3``,
            ``AWS_ENDPOINT_URL`` or the profile's endpoint. For GCS, URL of an emulator; by default
            ``STORAGE_EMULATOR_HOST``. Other schemes ignore endpoint, region and profile.
        region: The bucket's region; by default from the AWS chain, or ``us-east-1``.
        profile: Profile of the AWS configuration with the credentials.
        access: Endpoint, region, profile and more; replaces the three arguments.
        retry: When to repeat calls and when to give up, by default after the ``give_up_seconds`` of
            ``access``; None disables retries.
        max_bytes_per_second: Limit for reads, and for writes.
        unlisted: Called for each entry that the listing of a directory has to leave out. Unreadable
            directories, dangling links and names that are not UTF-8 are errors by default. Pipes,
            sockets, devices and links in circles are left out silently by default.

    Raises:
        ConfigError: ``config.unsupported_url``, ``config.secret``, ``config.path``,
            ``config.invalid_value`` or ``config.missing_package``.
    """
    check_url(url)
    access = access or Access(endpoint=endpoint, region=region, profile=profile)
    if access.endpoint:
        check_endpoint(access.endpoint, where="endpoint")
    if access.region:
        check_region(access.region, where="region")
    parts = parse_url(url)
    store: Store
    if parts.scheme in OPENERS:
        store = OPENERS[parts.scheme](parts, access)
    else:
        from larder.store.local.store import LocalStore

        path = parts.rest if parts.scheme else os.path.expanduser(parts.rest)
        store = LocalStore(path, unlisted=unlisted)
    if max_bytes_per_second is not None:
        from larder.store.throttle import ThrottledStore

        store = ThrottledStore(store, max_bytes_per_second)
    if retry is _DEFAULT_POLICY:
        retry = _DEFAULT_POLICY._replace(deadline_seconds=access.give_up_seconds)
    return RetryStore(store, retry) if retry else store


def open_location(
    location: Location,
    url: str | None = None,
    *,
    limits: CopyConfig | None = None,
    unlisted: OnUnlisted | None = None,
) -> Store:
    """Open the store at a location, or at another URL with the same credentials and endpoint."""
    access = location.access._replace(
        give_up_seconds=limits.give_up_seconds if limits else GIVE_UP_SECONDS
    )
    return open_store(
        url or location.url,
        access=access,
        max_bytes_per_second=limits.max_bytes_per_second if limits else None,
        unlisted=unlisted,
    )


def local_path(store: Store, key: str) -> Path:
    """Return the file of an object, in a store with the feature ``local_path``."""
    assert store.features.local_path, f"{store.url} has no paths"
    check_path_key(key, store.url)
    return Path(parse_url(store.url).rest + key)
