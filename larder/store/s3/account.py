"""Connections and credentials of an AWS account; credentials that expire are renewed."""

from __future__ import annotations

import os
from pathlib import Path

from larder.config.access import Access
from larder.store.accounts import SharedAccounts, connections
from larder.store.s3.credentials import S3Settings, credential_errors, find_settings
from larder.store.s3.sign import Keys

_CONFIG_FILES = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)


class S3Account:
    """Credentials, region and endpoint, looked up once, and connections.

    Args:
        access: Server and account.
        store_url: For messages.

    Raises:
        LarderError: See `larder.store.s3.credentials.find_settings`.
    """

    def __init__(self, access: Access, store_url: str) -> None:
        self.pid = os.getpid()
        self.settings: S3Settings = find_settings(store_url, access)
        self.http = connections(self.settings.endpoint, access)


class S3Bucket:
    """A bucket, and how it is reached.

    Args:
        name: Its name.
        store_url: For messages.
        access: Server, account, and who pays.
    """

    def __init__(self, name: str, store_url: str, access: Access) -> None:
        self.name = name
        self.store_url = store_url
        self.access = access
        self._account: S3Account | None = None

    @property
    def account(self) -> S3Account:
        """See there.

        Raises:
            LarderError: See `larder.store.s3.credentials.find_settings`.
        """
        account = self._account
        if account is None or account.pid != os.getpid():
            self._account = account = shared_account(self.access, self.store_url)
        return account

    @property
    def keys(self) -> Keys | None:
        """The current credentials, for signing; None for anonymous requests."""
        settings = self.account.settings
        if settings.credentials is None:
            return settings.keys
        whom = f"the role {self.access.role}" if self.access.role else "the profile or machine"
        with credential_errors(self.store_url, whom):
            frozen = settings.credentials.get_frozen_credentials()
        return Keys(frozen.access_key, frozen.secret_key, frozen.token or "")


def _files() -> tuple[tuple[int, int, int] | None, ...]:
    """Inode, size and modification time of the AWS configuration files."""
    states: list[tuple[int, int, int] | None] = []
    for variable, usual in _CONFIG_FILES:
        try:
            state = Path(os.environ.get(variable) or usual).expanduser().stat()
        except (OSError, RuntimeError):
            states.append(None)
        else:
            states.append((state.st_ino, state.st_size, state.st_mtime_ns))
    return tuple(states)


shared_account = SharedAccounts(S3Account, ("AWS_",), _files).get
