"""Connections and credentials of an account at a server, shared by all stores of the process.

Finding credentials and connecting take long, so both are kept as long as the process lives, and
credentials that expire are renewed. If the environment or a configuration file changes, they are
looked for again. A forked child makes its own: another thread may just have held their locks.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

from larder.config.access import Access
from larder.store.http import Http
from larder.store.s3.credentials import S3Settings, credential_errors, find_settings
from larder.store.s3.sign import Keys

_CONNECT_SECONDS = 10
_MOST_ACCOUNTS = 32
_VARIABLES = ("AWS_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HOME")
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
        silence_seconds = access.silence_seconds
        self.http = Http(
            self.settings.endpoint,
            connect_seconds=min(_CONNECT_SECONDS, silence_seconds),
            silence_seconds=silence_seconds,
        )


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


_lock = threading.Lock()
_accounts: OrderedDict[object, S3Account] = OrderedDict()
"""Least recently used first."""


def shared_account(access: Access, store_url: str) -> S3Account:
    """The account at a server, in the current environment; see `S3Account`."""
    place = (access, _environment(), _files())
    with _lock:
        account = _accounts.get(place) or S3Account(access, store_url)
        _accounts[place] = account
        _accounts.move_to_end(place)
        if len(_accounts) > _MOST_ACCOUNTS:
            _accounts.popitem(last=False)  # stores that use it keep it
        return account


def _environment() -> frozenset[tuple[str, str]]:
    """The environment variables that connections and credentials depend on."""
    return frozenset(
        (name, text)
        for name, text in os.environ.items()
        if name.startswith(_VARIABLES) or name.lower().endswith("_proxy")
    )


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


def _after_fork() -> None:
    global _lock, _accounts
    _lock, _accounts = threading.Lock(), OrderedDict()


os.register_at_fork(after_in_child=_after_fork)
