"""Accounts at servers, shared by all stores of the process, and credentials kept under a name.

Finding credentials and connecting take long, so both are kept as long as the process lives. If the
environment changes, they are looked for again. A forked child makes its own: connections cannot be
shared, and another thread may just have held a lock.

Credentials may be kept elsewhere, such as in Prefect's blocks. This library does not know where:
whoever does registers a loader for a kind of block. The flows do so for Prefect (`tasks.blocks`).
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from larder.config.access import Access
from larder.config.urls import environment_endpoint
from larder.errors import ConfigError
from larder.store.http import Http

T = TypeVar("T")

_MOST = 32
_CONNECT_SECONDS = 10
_CERTIFICATES = ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_")


def server_endpoint(provider: str, access: Access) -> str:
    """URL of the server, without a slash at the end; empty for the cloud's own."""
    return (access.endpoint or environment_endpoint(provider, os.environ)).rstrip("/")


def connections(endpoint: str, access: Access) -> Http:
    """Connections to a server, with the time limits of an access."""
    silence_seconds = access.silence_seconds
    return Http(
        endpoint,
        connect_seconds=min(_CONNECT_SECONDS, silence_seconds),
        silence_seconds=silence_seconds,
    )


class SharedAccounts(Generic[T]):
    """The accounts of one provider, least recently used first.

    Credentials depend on the environment variables that begin with one of ``variables``, and on
    the state of ``files``.
    """

    def __init__(
        self,
        make: Callable[[Access, str], T],
        variables: tuple[str, ...],
        files: Callable[[], object] = tuple,
    ) -> None:
        self._make = make
        self._variables = (*variables, *_CERTIFICATES, "HOME")
        self._files = files
        self._accounts: OrderedDict[object, T] = OrderedDict()
        self._lock = threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    def get(self, access: Access, store_url: str) -> T:
        """The account at a server, in the current process and environment."""
        place = (os.getpid(), access, self._environment(), self._files())
        with self._lock:
            account = self._accounts.get(place) or self._make(access, store_url)
            self._accounts[place] = account
            self._accounts.move_to_end(place)
            if len(self._accounts) > _MOST:
                self._accounts.popitem(last=False)  # stores that use it keep it
            return account

    def _environment(self) -> frozenset[tuple[str, str]]:
        return frozenset(
            (name, text)
            for name, text in os.environ.items()
            if name.startswith(self._variables) or name.lower().endswith("_proxy")
        )

    def _forked(self) -> None:
        self._lock = threading.Lock()


class Bucket(Generic[T]):
    """A bucket, and the process's account with which it is reached; after a fork, the child's."""

    def __init__(
        self, name: str, store_url: str, access: Access, shared: Callable[[Access, str], T]
    ) -> None:
        self.name = name
        self.store_url = store_url
        self.access = access
        self._shared = shared
        self._current: tuple[int, T] | None = None

    @property
    def account(self) -> T:
        """The account, or an error if there are no valid credentials."""
        current = self._current
        if current is None or current[0] != os.getpid():
            account = self._shared(self.access, self.store_url)
            self._current = current = os.getpid(), account
        return current[1]


Loader = Callable[[str], Mapping[str, Any]]
"""Returns the content of the block with a name; raises ConfigError if there is none."""

_NAMES = (
    ("aws_access_key_id", "access_key_id"),
    ("aws_secret_access_key", "secret_access_key"),
    ("aws_session_token", "session_token"),
)

_lock = threading.Lock()
_loaders: dict[str, Loader] = {}


def register(kind: str, loader: Loader) -> None:
    """Say how blocks of a kind (what precedes the slash in ``block``) are loaded by their names;
    replaces what was said before. The loader is called from any thread.
    """
    with _lock:
        _loaders[kind] = loader


def load(block: str) -> Mapping[str, Any]:
    """The content of a block ``KIND/NAME``, with its secrets; ``config.block`` if there is none."""
    kind, _, name = block.partition("/")
    with _lock:
        loader = _loaders.get(kind)
    if loader is None:
        raise ConfigError(
            "config.block",
            "blocks are kept by Prefect, which this command does without",
            where=f"block {block}",
            hint="run it as python -m flows.NAME with PREFECT_API_URL set, or name a profile",
        )
    return loader(name)


def aws_keys(block: str) -> tuple[str, str, str]:
    """The access key, the secret and the session token ("" if none) in a block ``KIND/NAME``."""
    content = load(block)
    texts = [_text(content, names) for names in _NAMES]
    if not (texts[0] and texts[1]):
        message = "the block has no access_key_id and secret_access_key"
        raise ConfigError("config.block", message, where=f"block {block}")
    if not all(text.isascii() and text.isprintable() for text in texts):
        message = "the block has keys with a line break or another invalid character"
        raise ConfigError("config.block", message, where=f"block {block}")
    return texts[0], texts[1], texts[2]


def _text(content: Mapping[str, Any], names: tuple[str, ...]) -> str:
    value = next((content[name] for name in names if content.get(name)), "")
    return value if isinstance(value, str) else ""
