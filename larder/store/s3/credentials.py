"""Endpoint, region and credentials of a bucket, from the standard AWS chain.

Keys in the environment are used directly. botocore finds all others, from a profile, a web
identity, a container or an instance, and renews expiring keys.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from larder.config.urls import Access, check_endpoint, check_region, s3_server, server_of
from larder.errors import ConfigError, RetryableError, StoreError
from larder.store.blocks import aws_keys
from larder.store.buckets import server_endpoint
from larder.store.http import trusted_certificates
from larder.store.s3.answers import CREDENTIALS_HINT
from larder.store.s3.sign import Keys

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_SESSION_NAME = "larder"
_CONNECT_SECONDS = 10
_LIVES_SECONDS = [900 >> n for n in range(10)]
"""botocore renews keys that are valid for less than 15 minutes, whenever it is asked for them."""

_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "SlowDown"})


@dataclass(frozen=True, slots=True)
class S3Settings:
    """Endpoint and region of a bucket, and its credentials: keys, botocore's, or none.

    Requests are signed for the region. ``checksums`` tells whether they may have checksum headers.
    """

    endpoint: str
    region: str
    checksums: bool
    keys: Keys | None = None
    credentials: Any = field(default=None, repr=False)


def find_settings(store_url: str, access: Access) -> S3Settings:
    """Look up endpoint, region and credentials.

    Raises:
        StoreError, RetryableError: See `credential_errors`.
        ConfigError: ``config.block``; or an invalid endpoint or region.
    """
    endpoint = server_endpoint("s3", access)
    region = access.region or _environment_region()
    keys = _known_keys(access)
    if access.anonymous or (keys and not access.role):
        region = region or "us-east-1"
        checksums = os.environ.get("AWS_REQUEST_CHECKSUM_CALCULATION", "")
        endpoint = endpoint or s3_server(region)
        return S3Settings(endpoint, region, _has_checksums(checksums), keys)
    with credential_errors(store_url, "the profile or machine"):
        return _by_botocore(store_url, access, keys, endpoint, region)


def _known_keys(access: Access) -> Keys | None:
    """Return the keys to use if botocore is not needed to find them; else None."""
    if access.anonymous:
        return None
    if access.block:
        return Keys(*aws_keys(access.block))
    config = Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser()
    if access.profile or os.environ.get("AWS_PROFILE") or config.exists():
        return None
    key, secret, token = (_credential(name) for name in _CREDENTIALS)
    return Keys(key, secret, token) if key and secret else None


def _by_botocore(
    store_url: str, access: Access, keys: Keys | None, endpoint: str, region: str
) -> S3Settings:
    from botocore.session import Session

    session = Session(profile=access.profile)
    if not session.get_config_variable("ca_bundle"):
        session.set_config_variable("ca_bundle", trusted_certificates())
    if keys:
        session.set_credentials(keys.access_key, keys.secret_key, keys.token or None)
    if not _asks_metadata(endpoint):
        session.get_component("credential_provider").remove("iam-role")
    credentials = session.get_credentials()
    if credentials is None:
        raise StoreError(
            "store.denied",
            "no AWS credentials in the environment, the profile or the role of this machine",
            where=store_url,
            hint=CREDENTIALS_HINT,
        )
    region = region or session.get_config_variable("region") or "us-east-1"
    profile = session.profile or "default"
    check_region(region, where=f"region of AWS profile {profile}")
    endpoint = endpoint or _configured_endpoint(session, region, profile)
    if access.role:
        credentials = _of_role(session, access, access.role, region)
    checksums = _has_checksums(session.get_config_variable("request_checksum_calculation"))
    return S3Settings(endpoint, region, checksums, credentials=credentials)


def _has_checksums(calculation: str | None) -> bool:
    return (calculation or "").lower() != "when_required"


def _of_role(session: Any, access: Access, role: str, region: str) -> Any:
    """Return the credentials of a role, which are requested at their first use.

    Requests go to the endpoint of the access, unless ``AWS_ENDPOINT_URL_STS`` names another.
    """
    from botocore.config import Config
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    config = Config(
        connect_timeout=min(_CONNECT_SECONDS, access.give_up_seconds / 2),
        read_timeout=access.give_up_seconds / 2,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    endpoint = None if os.environ.get("AWS_ENDPOINT_URL_STS") else access.endpoint

    def client(service: str, **keys: Any) -> Any:
        return session.create_client(
            service, region_name=region, endpoint_url=endpoint, config=config, **keys
        )

    fetcher = AssumeRoleCredentialFetcher(
        client_creator=client,
        source_credentials=session.get_credentials(),
        role_arn=role,
        extra_args={"RoleSessionName": _SESSION_NAME},
    )
    return DeferredRefreshableCredentials(
        method="assume-role", refresh_using=fetcher.fetch_credentials
    )


def current_keys(settings: S3Settings, store_url: str, access: Access) -> tuple[Keys | None, float]:
    """Return the signing keys (None: anonymous) and their minimum validity in seconds."""
    if settings.credentials is None:
        return settings.keys, _LIVES_SECONDS[0]
    whom = f"the role {access.role}" if access.role else "the profile or machine"
    with credential_errors(store_url, whom):
        frozen = settings.credentials.get_frozen_credentials()
    expire_within = getattr(settings.credentials, "refresh_needed", lambda seconds: False)
    valid = (seconds for seconds in _LIVES_SECONDS if not expire_within(seconds))
    return Keys(frozen.access_key, frozen.secret_key, frozen.token or ""), next(valid, 0)


@contextmanager
def credential_errors(store_url: str, what: str) -> Iterator[None]:
    """Raise botocore's errors about credentials of ``what`` as errors of a store:
    ``store.denied``, or ``store.unavailable`` if their provider is busy or does not answer.
    """
    from botocore import exceptions as of_botocore
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    try:
        yield
    except ClientError as error:
        refusal = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = f"no credentials of {what}: {refusal.get('Code', status)}"
        if status >= 500 or refusal.get("Code") in _BUSY:
            raise RetryableError("store.unavailable", message, where=store_url) from error
        detail = " ".join(str(refusal.get("Message") or "").split())
        message = f"{message}: {detail}" if detail else message
        hint = "check that these credentials may assume it, and that it trusts them"
        raise StoreError("store.denied", message, where=store_url, hint=hint) from error
    except (of_botocore.ConnectionError, HTTPClientError) as error:  # no connection, or no answer
        message = f"no credentials of {what}: the server that gives them does not answer"
        raise RetryableError("store.unavailable", message, where=store_url) from error
    except (BotoCoreError, RuntimeError, OSError) as error:  # OSError: a token file is missing
        message = f"no credentials of {what}: {' '.join(str(error).split())}"
        hint = CREDENTIALS_HINT
        raise StoreError("store.denied", message, where=store_url, hint=hint) from error


def _asks_metadata(endpoint: str) -> bool:
    """Whether to ask an instance's metadata service for the credentials for a server.

    The instance's role does not apply to a server on this machine, and outside a cloud the request
    would wait for an address that does not answer.
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    on_this_machine = server_of(endpoint).startswith("localhost:")
    return not on_this_machine or bool(os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT"))


def _environment_region() -> str:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        if region := os.environ.get(name, ""):
            check_region(region, where=f"environment variable {name}")
            return region
    return ""


def _configured_endpoint(session: Any, region: str, profile: str) -> str:
    where = f"endpoint_url of AWS profile {profile}"
    try:
        client = session.create_client("s3", region_name=region)
    except ValueError:  # its message contains the URL
        raise ConfigError("config.invalid_value", "not the URL of a server", where=where) from None
    endpoint: str = client.meta.endpoint_url
    client.close()
    check_endpoint(endpoint, where=where)
    return endpoint


def _credential(name: str) -> str:
    """Return an environment variable; refuse a value that a request's header cannot contain."""
    text = os.environ.get(name, "")
    if not (text.isascii() and text.isprintable()):
        raise ConfigError(
            "config.invalid_value",
            "contains a line break or another character that is invalid in a credential",
            where=f"environment variable {name}",
        )
    return text
