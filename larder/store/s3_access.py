"""Credentials, region and endpoint of a bucket, and the clients that use them.

Two clients share the work. obstore (Rust) moves the bytes. boto3 does what obstore cannot do: keys
that obstore alters (see `is_plain`), multipart uploads with growing parts, and credentials that are
not in the environment. If it is not installed, as in a training container, obstore itself finds the
credentials of a role or an instance (`larder.store.s3_chain`).
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from larder.config.urls import ENDPOINT_VARIABLES, check_endpoint, check_region
from larder.errors import ConfigError, StoreError
from larder.store.s3_chain import Chain, asks_metadata, find_chain, no_credentials, without_boto3
from larder.store.s3_clients import S3Clients, shared_clients
from larder.store.s3_errors import CREDENTIALS_HINT

if TYPE_CHECKING:
    from obstore.store import S3Credential, S3Store

__all__ = ["S3Access", "has_boto3", "import_boto3", "is_loopback", "is_plain"]

_CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_CONNECT_SECONDS = 10
_SILENCE_SECONDS = 120
_LISTING_SILENCE_SECONDS = 60
_CREDENTIALS_FOR = timedelta(minutes=5)
_MOST_CONNECTIONS = 256  # over all stores of the process; kept open between uses


def is_plain(full_key: str) -> bool:
    """Whether obstore accepts a key unchanged.

    obstore 0.12 silently drops leading and trailing slashes, and refuses empty, ``.`` and ``..``
    segments and control characters.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in full_key):
        return False
    return not {"", ".", ".."}.intersection(full_key.split("/"))


@dataclass(frozen=True, slots=True)
class _Settings:
    """Where a bucket is, and the credentials.

    Attributes:
        endpoint: URL of the server.
        region: The region that requests are signed for.
        keys: Access key, secret and session token ("" if none) from the environment, or None.
        session: boto3's session, if it was used.
        chain: Where obstore gets the credentials, without either.
    """

    endpoint: str
    region: str
    keys: tuple[str, str, str] | None
    session: Any = None
    chain: Chain | None = None


class S3Access:
    """The clients for one bucket, shared by all stores with the same server and credentials.

    Args:
        bucket: Name of the bucket.
        store_url: For messages.
        endpoint: See `larder.store.open_store`, also for the next two.
        region: See there.
        profile: See there.
    """

    def __init__(
        self,
        bucket: str,
        store_url: str,
        *,
        endpoint: str | None,
        region: str | None,
        profile: str | None,
    ) -> None:
        self.bucket = bucket
        self.store_url = store_url
        self._endpoint = endpoint
        self._region = region
        self._profile = profile
        self._found: S3Clients | None = None

    @property
    def settings(self) -> _Settings:
        """Credentials, region and endpoint, looked up once.

        Raises:
            StoreError: ``store.denied``: no credentials were found.
            ConfigError: ``config.missing_package``: they are in a profile, but boto3 is missing; or
                the environment or the profile has an invalid endpoint.
        """
        return self._once("settings", self._look_up)  # type: ignore[no-any-return]

    @property
    def obstore(self) -> S3Store:
        """The client that moves bytes. Does not retry; `RetryStore` does."""
        return self._once(f"obstore {self.bucket}", self._make_obstore)  # type: ignore[no-any-return]

    @property
    def boto(self) -> Any:
        """boto3's client. Does not retry; `RetryStore` does."""
        return self._once("boto", lambda: self._make_boto(tries=1))

    @property
    def retrying_boto(self) -> Any:
        """boto3's client with retries: for streams, whose parts `RetryStore` cannot send again."""
        return self._once("retrying", lambda: self._make_boto(tries=6))

    @property
    def credentials(self) -> Any:
        """The current credentials, from botocore, for signing."""
        return self._session().get_credentials().get_frozen_credentials()

    @property
    def http(self) -> Any:
        """Connections to the server, for requests that Larder signs itself."""
        return self._once("http", self._make_http)

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        found = self._found
        if found is None or found.pid != os.getpid():
            found = shared_clients(self._endpoint, self._region, self._profile)
        made = found.once(name, make)
        self._found = found  # after a failure, the environment may have changed
        return made

    def _look_up(self) -> _Settings:
        endpoint = self._endpoint or _environment_endpoint()
        region = self._region or _environment_region()
        keys = None if self._profile or _has_configuration() else _environment_keys()
        if keys:
            region = region or "us-east-1"
            return _Settings(endpoint or _aws_endpoint(region), region, keys)
        boto3 = _boto3()
        if boto3 is None:
            return self._by_obstore(endpoint, region)
        from botocore.exceptions import BotoCoreError

        try:
            return self._ask(boto3.Session(profile_name=self._profile), endpoint, region)
        except BotoCoreError as error:
            message = " ".join(str(error).split())
            raise StoreError(
                "store.denied", message, where=self.store_url, hint=CREDENTIALS_HINT
            ) from error

    def _by_obstore(self, endpoint: str, region: str) -> _Settings:
        local = is_loopback(endpoint)
        chain = find_chain(self._profile, region, self.store_url, local_server=local)
        chain.check(self.store_url)
        region = region or chain.region or "us-east-1"
        return _Settings(endpoint or _aws_endpoint(region), region, None, chain=chain)

    def _ask(self, session: Any, endpoint: str, region: str) -> _Settings:
        if not asks_metadata(is_loopback(endpoint)):
            session._session.get_component("credential_provider").remove("iam-role")
        if session.get_credentials() is None:
            raise no_credentials(self.store_url)
        region = region or session.region_name or "us-east-1"
        check_region(region, where=f"region of AWS profile {session.profile_name}")
        if not endpoint:
            endpoint = _configured_endpoint(session, region)
        return _Settings(endpoint, region, None, session)

    def _session(self) -> Any:
        """boto3's session, with the keys of the environment if they are used."""
        settings = self.settings
        if settings.session is not None:
            return settings.session
        boto3 = import_boto3("listing, streamed uploads, unusual keys and forked processes")
        assert settings.keys is not None
        key, secret, token = settings.keys
        return self._once(
            "session",
            lambda: boto3.Session(
                aws_access_key_id=key,
                aws_secret_access_key=secret,
                aws_session_token=token or None,
                region_name=settings.region,
            ),
        )

    def _make_boto(self, tries: int) -> Any:
        session = self._session()
        from botocore.config import Config

        config = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_SILENCE_SECONDS,
            retries={"total_max_attempts": tries, "mode": "standard"},
            max_pool_connections=_MOST_CONNECTIONS,
            # A signed payload is protected in transit as by a checksum, on every server; older
            # servers do not support S3's newer checksums.
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path", "payload_signing_enabled": True},
        )
        settings = self.settings
        return session.client(
            "s3", endpoint_url=settings.endpoint, region_name=settings.region, config=config
        )

    def _make_http(self) -> Any:
        from botocore.httpsession import URLLib3Session
        from botocore.utils import get_environ_proxies

        return URLLib3Session(
            proxies=get_environ_proxies(self.settings.endpoint),
            timeout=(_CONNECT_SECONDS, _LISTING_SILENCE_SECONDS),
            max_pool_connections=_MOST_CONNECTIONS,
        )

    def _make_obstore(self) -> S3Store:
        from obstore.store import S3Store

        settings = self.settings
        config: dict[str, Any] = {
            "region": settings.region,
            # This setting overrides the environment variables that obstore reads too.
            "aws_endpoint_url_s3": settings.endpoint,
            "virtual_hosted_style_request": False,
            "disable_bulk_delete": True,
            "skip_signature": False,
        }
        provider = None
        if settings.keys:
            config["access_key_id"], config["secret_access_key"], token = settings.keys
            if token:
                config["session_token"] = token
        elif settings.chain:
            config.update(settings.chain.options)
        else:
            provider = _Provider(settings.session.get_credentials())
        return S3Store(
            self.bucket,
            config=config,  # type: ignore[arg-type]
            client_options={
                "allow_http": settings.endpoint.startswith("http:"),
                "connect_timeout": timedelta(seconds=_CONNECT_SECONDS),
                "read_timeout": timedelta(seconds=_SILENCE_SECONDS),
                # For the complete answer, however long it takes to read: in effect no limit.
                "timeout": timedelta(days=7),
            },
            retry_config={"max_retries": 0},
            credential_provider=provider,
        )


class _Provider:
    """Gives obstore the credentials that botocore refreshes."""

    def __init__(self, credentials: Any) -> None:
        self._credentials = credentials

    def __call__(self) -> S3Credential:
        """The current credentials, in obstore's form."""
        frozen = self._credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key,
            "secret_access_key": frozen.secret_key,
            "token": frozen.token,
            "expires_at": datetime.now(UTC) + _CREDENTIALS_FOR,
        }


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


def _environment_endpoint() -> str:
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
