"""The process's GCS clients, shared by all stores with the same server and account.

Of gcsfs, Larder uses the credentials, the addresses and the parameters of requests. The calls of
gcsfs itself are not used: they repeat requests on their own, drop the status and the headers of
answers, and keep listings.

All clients run in one thread. A forked child makes its own: neither the thread nor the connections
of its parent exist there.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from larder.errors import LarderError, RetryableError, StoreError
from larder.store.access import Access
from larder.store.gcs_errors import GCS_CREDENTIALS_HINT
from larder.store.gcs_loop import LoopThread
from larder.store.gcs_settings import find_gcs_settings, import_gcsfs

if TYPE_CHECKING:
    import aiohttp

__all__ = ["GcsClient", "shared_client"]

_MOST_CLIENTS = 32
_VARIABLES = ("GOOGLE_", "STORAGE_EMULATOR_HOST", "CLOUDSDK_", "SSL_CERT_", "NO_GCE_", "HOME")
_CONNECT_SECONDS = 10.0
_READ_BYTES = 1 << 20


class GcsClient:
    """Connections and credentials of one account at one server.

    Args:
        access: Server and account.
        thread: Where the requests run.
    """

    def __init__(self, access: Access, thread: LoopThread) -> None:
        self.access = access
        self.thread = thread
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._files: Any = None
        self._session: aiohttp.ClientSession | None = None
        self._proxy: str | None = None

    def files(self, store_url: str) -> Any:
        """The file system of gcsfs, with credentials that are valid for some minutes.

        Not to be called in the client's thread, which it would block.

        Args:
            store_url: For messages.

        Raises:
            LarderError: See `larder.store.gcs_settings.find_gcs_settings`; ``store.denied``: the
                credentials cannot be renewed.
        """
        with self._lock:
            if self._files is None:
                self._files = self._make(store_url)
        self._renew(store_url)
        return self._files

    def _make(self, store_url: str) -> Any:
        core = import_gcsfs()
        settings = find_gcs_settings(store_url, self.access)
        return core.GCSFileSystem(
            project=settings.project,
            token=settings.credentials or "anon",
            requester_pays=settings.project if self.access.requester_pays else False,
            endpoint_url=settings.endpoint or None,
            asynchronous=True,
            loop=self.thread.loop,
            skip_instance_cache=True,
            use_listings_cache=False,
        )

    def _renew(self, store_url: str) -> None:
        from gcsfs.retry import HttpError, NonRetryableError
        from google.auth.exceptions import GoogleAuthError

        try:
            self._files.credentials.maybe_refresh()
        except (GoogleAuthError, HttpError, NonRetryableError) as error:
            raise _unrenewed(error, store_url) from error

    async def session(self) -> aiohttp.ClientSession:
        """The connections. In the client's thread only."""
        if self._session is None:
            tls = await self._tls()
            if self._session is None:
                self._session = self._connect(tls)
                weakref.finalize(self, _end, self.thread, self._session).atexit = False
        return self._session

    async def _tls(self) -> Any:
        """What TLS needs: for some accounts, the certificate of this machine."""
        if not self._files._use_client_cert:
            return True
        return await asyncio.to_thread(import_gcsfs()._client_cert_ssl_context)

    def _connect(self, tls: Any) -> aiohttp.ClientSession:
        import aiohttp

        seconds = self.access.give_up_seconds
        return aiohttp.ClientSession(
            # Without a limit: if one were reached, readers that wait for their writers would hold
            # the connections that the writers wait for.
            connector=aiohttp.TCPConnector(limit=0, ssl=tls),
            read_bufsize=_READ_BYTES,
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=min(_CONNECT_SECONDS, seconds), sock_read=seconds
            ),
        )

    @property
    def proxy(self) -> str | None:
        """The proxy of the environment for the server; aiohttp itself would look it up each time.

        In the client's thread only.
        """
        if self._proxy is None:
            server = urlsplit(self._files._location)
            found = getproxies().get(server.scheme, "")
            found = found if "://" in found or not found else f"http://{found}"
            self._proxy = "" if found and proxy_bypass(server.netloc) else found
        return self._proxy or None

    def close(self) -> None:
        """Close the connections."""
        session, self._session = self._session, None
        if session is not None:
            self.thread.run(session.close())


def _end(thread: LoopThread, session: aiohttp.ClientSession) -> None:
    """Close the connections of a client that nobody uses."""
    thread.begin(session.close())


def _unrenewed(error: Exception, store_url: str) -> LarderError:
    from google.auth.exceptions import TransportError

    if isinstance(error, TransportError) or getattr(error.__cause__, "retryable", False):
        message = "the credentials cannot be renewed now"
        return RetryableError("store.unavailable", message, where=store_url)
    message = "the credentials are refused"
    return StoreError("store.denied", message, where=store_url, hint=GCS_CREDENTIALS_HINT)


class _Process:
    """The clients of this process, least recently used first, and their thread."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: LoopThread | None = None
        self.clients: OrderedDict[object, GcsClient] = OrderedDict()
        self.all: weakref.WeakSet[GcsClient] = weakref.WeakSet()
        """With those that only a store uses."""

    def client(self, access: Access) -> GcsClient:
        """See `shared_client`."""
        place = (access, _environment())
        with self.lock:
            if self.thread is None:
                self.thread = LoopThread()
            found = self.clients.get(place) or GcsClient(access, self.thread)
            self.clients[place] = found
            self.all.add(found)
            self.clients.move_to_end(place)
            if len(self.clients) > _MOST_CLIENTS:
                self.clients.popitem(last=False)  # stores that use it keep it
            return found

    def close(self) -> None:
        """Close all connections, and end the thread."""
        for client in list(self.all):
            client.close()
        if self.thread is not None:
            self.thread.close()


_process = _Process()
_inherited: list[_Process] = []
"""The clients of the parent process, kept so that they are not closed here."""


def shared_client(access: Access) -> GcsClient:
    """The client for a server and account, in the current environment."""
    return _process.client(access)


def _environment() -> frozenset[tuple[str, str]]:
    """The environment variables that clients, proxies and credentials depend on."""
    return frozenset(
        (name, value)
        for name, value in os.environ.items()
        if name.startswith(_VARIABLES) or name.lower().endswith("_proxy")
    )


def _after_fork() -> None:
    global _process
    _inherited.append(_process)
    _process = _Process()


os.register_at_fork(after_in_child=_after_fork)
# A lambda, because a forked child has another `_process`.
atexit.register(lambda: _process.close())
