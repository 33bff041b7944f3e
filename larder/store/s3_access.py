"""The clients for a bucket.

Larder signs and sends requests itself (`larder.store.s3_http`); boto3 finds the credentials that
are not in the environment. If it is not installed, as in a training container, obstore (Rust) finds
those of a role or an instance (`larder.store.s3_chain`), and moves the bytes.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from larder.store.access import Access
from larder.store.http import Http
from larder.store.s3_chain import without_boto3
from larder.store.s3_clients import S3Clients, shared_clients
from larder.store.s3_role import credential_errors
from larder.store.s3_settings import S3Settings, find_settings
from larder.store.s3_sign import Keys

if TYPE_CHECKING:
    from obstore.store import S3Store

__all__ = ["S3Access", "is_plain"]

_CONNECT_SECONDS = 10


def is_plain(full_key: str) -> bool:
    """Whether obstore accepts a key unchanged.

    obstore 0.12 silently drops leading and trailing slashes, and refuses empty, ``.`` and ``..``
    segments and control characters.
    """
    if any(ord(char) < 32 or ord(char) == 127 for char in full_key):
        return False
    return not {"", ".", ".."}.intersection(full_key.split("/"))


class S3Access:
    """The clients for one bucket, shared by all stores with the same server and credentials.

    Args:
        bucket: Name of the bucket.
        store_url: For messages.
        access: Server, account, and who pays.
    """

    def __init__(
        self,
        bucket: str,
        store_url: str,
        access: Access,
    ) -> None:
        self.bucket = bucket
        self.store_url = store_url
        self.access = access
        self._found: S3Clients | None = None
        self._http: tuple[int, Http] | None = None
        self._settings: tuple[int, S3Settings] | None = None

    @property
    def settings(self) -> S3Settings:
        """Credentials, region and endpoint, looked up once.

        Raises:
            LarderError: See `larder.store.s3_settings.find_settings`.
        """
        pid = os.getpid()
        if self._settings is None or self._settings[0] != pid:
            self._settings = (pid, self._once("settings", self._find_settings))
        return self._settings[1]

    @property
    def obstore(self) -> S3Store:
        """The client that moves bytes. Does not retry; `RetryStore` does."""
        return self._once(f"obstore {self.bucket}", self._make_obstore)  # type: ignore[no-any-return]

    @property
    def keys(self) -> Keys | None:
        """The current credentials, for signing; None for anonymous requests."""
        settings = self.settings
        if self.access.anonymous:
            return None
        if settings.keys:
            return Keys(*settings.keys)
        if settings.session is None:
            raise without_boto3("listing, streamed uploads, unusual keys and forked processes need")
        whom = f"the role {self.access.role}" if self.access.role else "the profile or machine"
        with credential_errors(self.store_url, whom):
            frozen = settings.session.get_credentials().get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token or "")

    @property
    def signs(self) -> bool:
        """Whether there are credentials to sign with; otherwise only obstore can find them."""
        return self.settings.chain is None

    @property
    def http(self) -> Http:
        """Connections to the server."""
        pid = os.getpid()
        if self._http is None or self._http[0] != pid:
            self._http = (pid, self._once("http", self._make_http))
        return self._http[1]

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        found = self._found
        if found is None or found.pid != os.getpid():
            found = shared_clients(self.access)
        made = found.once(name, make)
        self._found = found  # after a failure, the environment may have changed
        return made

    def _find_settings(self) -> S3Settings:
        return find_settings(self.store_url, self.access)

    def _make_http(self) -> Http:
        silence_seconds = self.access.silence_seconds
        return Http(
            self.settings.endpoint,
            connect_seconds=min(_CONNECT_SECONDS, silence_seconds),
            silence_seconds=silence_seconds,
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
        assert settings.chain is not None, "otherwise requests are signed here"
        config.update(settings.chain.options)
        return S3Store(
            self.bucket,
            config=config,  # type: ignore[arg-type]
            client_options={
                "allow_http": settings.endpoint.startswith("http:"),
                "connect_timeout": timedelta(
                    seconds=min(_CONNECT_SECONDS, self.access.silence_seconds)
                ),
                "read_timeout": timedelta(seconds=self.access.silence_seconds),
                # For the complete answer, however long it takes to read: in effect no limit.
                "timeout": timedelta(days=7),
            },
            retry_config={"max_retries": 0},
        )
