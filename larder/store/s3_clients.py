"""The process's S3 clients, shared by all stores with the same server and credentials.

Creating a client is expensive (reading botocore's models, TLS, requesting credentials), so clients
live as long as the process and renew credentials that expire. If the environment or a configuration
file changes, new clients are created.

A forked child creates its own clients: two processes cannot share connections. The threads of
obstore do not exist in the child of a process that has used it, and a call would wait for ever.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from larder.store.access import Access
from larder.store.s3_chain import CONFIG_FILES

__all__ = ["S3Clients", "lost_obstore", "shared_clients"]

_MOST_PLACES = 32
_VARIABLES = ("AWS_", "SSL_CERT_", "REQUESTS_CA_BUNDLE", "HOME")


class S3Clients:
    """Clients that are created when first needed, and kept. May be used by many threads."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.RLock()
        self._made: dict[str, Any] = {}

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """The client with a name, created if needed.

        Args:
            name: Name of the client; one that begins with ``obstore`` has its own threads.
            make: Creates it; its errors are raised here, and the next call tries again.
        """
        with self._lock:
            if name not in self._made:
                self._made[name] = make()
                _process.uses_obstore |= name.startswith("obstore")
            return self._made[name]

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            made, self._made = self._made, {}
        for client in made.values():
            if hasattr(client, "close"):
                client.close()


class _Process:
    """The clients of this process, least recently used first."""

    def __init__(self, *, lost_obstore: bool = False) -> None:
        self.lock = threading.Lock()
        self.clients: OrderedDict[object, S3Clients] = OrderedDict()
        self.uses_obstore = False
        self.lost_obstore = lost_obstore


_process = _Process()
_inherited: list[_Process] = []
"""The clients of the parent process, kept so that they are not closed here."""


def shared_clients(access: Access) -> S3Clients:
    """The clients for a server and account, in the current environment."""
    place = (access, _environment(), _files())
    with _process.lock:
        clients = _process.clients.setdefault(place, S3Clients())
        _process.clients.move_to_end(place)
        if len(_process.clients) > _MOST_PLACES:
            _process.clients.popitem(last=False)  # stores that use them keep them
        return clients


def lost_obstore() -> bool:
    """Whether this process was forked after obstore was used, and so cannot use it."""
    return _process.lost_obstore


def _environment() -> frozenset[tuple[str, str]]:
    """The environment variables that clients, proxies and credentials depend on."""
    return frozenset(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(_VARIABLES) or name.lower().endswith("_proxy")
    )


def _files() -> tuple[tuple[int, int, int] | None, ...]:
    """Inode, size and modification time of the AWS configuration files."""
    found: list[tuple[int, int, int] | None] = []
    for variable, usual in CONFIG_FILES:
        try:
            facts = Path(os.environ.get(variable) or usual).expanduser().stat()
        except (OSError, RuntimeError):
            found.append(None)
        else:
            found.append((facts.st_ino, facts.st_size, facts.st_mtime_ns))
    return tuple(found)


def _after_fork() -> None:
    global _process
    _inherited.append(_process)
    _process = _Process(lost_obstore=_process.uses_obstore or _process.lost_obstore)


def _close_all() -> None:
    for clients in _process.clients.values():
        clients.close()


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_close_all)
