"""Endpoint, region and credentials of a bucket, from the standard AWS chain."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from larder.config.urls import ENDPOINT_VARIABLES, check_endpoint, check_region
from larder.errors import ConfigError, StoreError
from larder.store.access import Access
from larder.store.blocks import aws_keys
from larder.store.s3_chain import Chain, asks_metadata, find_chain, no_credentials, without_boto3
from larder.store.s3_errors import CREDENTIALS_HINT
from larder.store.s3_role import assume_role

__all__ = [
    "S3Settings",
    "environment_endpoint",
    "find_settings",
    "has_boto3",
    "import_boto3",
    "is_loopback",
]

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Where a bucket is, and the credentials.

    Attributes:
        endpoint: URL of the server.
        region: The region that requests are signed for.
        keys: Access key, secret and session token ("" if none) from the environment or a block, or
            None.
        session: boto3's session, if it was used.
        chain: Where obstore gets the credentials, without either.

    Without any of the last three, requests are not signed.
    """

    endpoint: str
    region: str
    keys: tuple[str, str, str] | None = field(repr=False)
    session: Any = None
    chain: Chain | None = None


def find_settings(store_url: str, access: Access) -> S3Settings:
    """Look up endpoint, region and credentials.

    Args:
        store_url: For messages.
        access: Server and account.

    Raises:
        StoreError: ``store.denied``: no credentials were found.
        ConfigError: ``config.missing_package``: they are in a profile or of a role, but boto3 is
            missing; ``config.block``: the block cannot be loaded; or the environment or the profile
            has an invalid endpoint.
    """
    endpoint = access.endpoint or environment_endpoint()
    region = access.region or _environment_region()
    keys = _known_keys(access)
    if access.anonymous or (keys and not access.role):
        region = region or "us-east-1"
        return S3Settings(endpoint or _aws_endpoint(region), region, keys)
    boto3 = _boto3()
    if boto3 is None:
        if access.role:
            raise without_boto3("a role needs")
        return _by_obstore(store_url, endpoint, region, access.profile)
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.Session(*(keys or ()), profile_name=access.profile)
        found = _by_boto3(store_url, session, endpoint, region)
    except BotoCoreError as error:
        message = " ".join(str(error).split())
        raise StoreError("store.denied", message, where=store_url, hint=CREDENTIALS_HINT) from error
    return _of_role(found, access) if access.role else found


def _known_keys(access: Access) -> tuple[str, str, str] | None:
    """The keys that are known without boto3, if they are those to use."""
    if access.anonymous:
        return None
    if access.block:
        return aws_keys(access.block)
    return None if access.profile or _has_configuration() else _environment_keys()


def _of_role(found: S3Settings, access: Access) -> S3Settings:
    assert access.role
    session = assume_role(
        found.session,
        access.role,
        endpoint=access.endpoint,
        region=found.region,
        give_up_seconds=access.give_up_seconds,
    )
    return replace(found, session=session)


def _by_obstore(store_url: str, endpoint: str, region: str, profile: str | None) -> S3Settings:
    chain = find_chain(profile, region, store_url, local_server=is_loopback(endpoint))
    chain.check(store_url)
    region = region or chain.region or "us-east-1"
    return S3Settings(endpoint or _aws_endpoint(region), region, None, chain=chain)


def _by_boto3(store_url: str, session: Any, endpoint: str, region: str) -> S3Settings:
    if not asks_metadata(is_loopback(endpoint)):
        session._session.get_component("credential_provider").remove("iam-role")
    if session.get_credentials() is None:
        raise no_credentials(store_url)
    region = region or session.region_name or "us-east-1"
    check_region(region, where=f"region of AWS profile {session.profile_name}")
    if not endpoint:
        endpoint = _configured_endpoint(session, region)
    return S3Settings(endpoint, region, None, session)


def import_boto3(purpose: str) -> Any:
    """boto3, or an error that says how to install it.

    Args:
        purpose: What it is needed for.

    Raises:
        ConfigError: ``config.missing_package``.
    """
    boto3 = _boto3()
    if boto3 is None:
        raise without_boto3(f"{purpose} on S3 need")
    return boto3


def has_boto3() -> bool:
    """Whether boto3 is installed."""
    return _boto3() is not None


def is_loopback(endpoint: str) -> bool:
    """Whether the host of a URL is this machine."""
    host = urlsplit(endpoint).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _boto3() -> Any:
    """boto3, or None if it is not installed."""
    try:
        import boto3
    except ImportError:
        return None
    return boto3


def environment_endpoint() -> str:
    """The endpoint in the environment.

    Raises:
        ConfigError: It is not the URL of a server, or contains credentials.
    """
    for name in ENDPOINT_VARIABLES:
        if endpoint := os.environ.get(name, ""):
            check_endpoint(endpoint, where=f"environment variable {name}")
            return endpoint
    return ""


def _environment_region() -> str:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := os.environ.get(name, ""):
            check_region(region, where=f"environment variable {name}")
            return region
    return ""


def _configured_endpoint(session: Any, region: str) -> str:
    """The endpoint of the profile, by default AWS's own.

    Raises:
        ConfigError: It is not the URL of a server, or contains credentials.
    """
    where = f"endpoint_url of AWS profile {session.profile_name}"
    try:
        client = session.client("s3", region_name=region)
    except ValueError:  # its message contains the URL
        raise ConfigError("config.invalid_value", "not the URL of a server", where=where) from None
    endpoint: str = client.meta.endpoint_url
    client.close()
    check_endpoint(endpoint, where=where)
    return endpoint


def _environment_keys() -> tuple[str, str, str] | None:
    key, secret, token = (_credential(name) for name in _CREDENTIALS)
    return (key, secret, token) if key and secret else None


def _credential(name: str) -> str:
    """The value of an environment variable, if the header of a request can contain it."""
    value = os.environ.get(name, "")
    if not (value.isascii() and value.isprintable()):
        raise ConfigError(
            "config.invalid_value",
            "contains a line break or another character that is invalid in a credential",
            where=f"environment variable {name}",
        )
    return value


def _has_configuration() -> bool:
    """Whether there are AWS profiles, and botocore to read them."""
    path = os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config"
    there = bool(os.environ.get("AWS_PROFILE")) or Path(path).expanduser().exists()
    return there and has_boto3()


def _aws_endpoint(region: str) -> str:
    suffix = ".cn" if region.startswith("cn-") else ""
    return f"https://s3.{region}.amazonaws.com{suffix}"
