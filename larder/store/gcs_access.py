"""Requests to the JSON API of GCS for one bucket, one at a time: none is repeated here.

https://cloud.google.com/storage/docs/json_api
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlencode

from larder.errors import StoreError
from larder.store.access import Access
from larder.store.base import Buffer
from larder.store.gcs_clients import GcsClient, shared_client
from larder.store.gcs_errors import GcsAnswer, gcs_error, no_answer
from larder.store.s3_errors import Call

if TYPE_CHECKING:
    import aiohttp

__all__ = ["GcsAccess", "RepeatableBody", "Request", "Response", "transport_errors"]

T = TypeVar("T")

_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: Such as ``GET``.
        path: The path on the server; or the whole URL of an upload session.
        query: Parameters; those that are None are left out.
        headers: Headers.
        data: The body, in buffers.
        accept: The statuses that are no errors, in addition to 2xx.
    """

    method: str
    path: str
    query: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    data: tuple[Buffer, ...] = ()
    accept: tuple[int, ...] = ()

    @property
    def size_bytes(self) -> int:
        """Length of the body."""
        return sum(len(memoryview(each).cast("B")) for each in self.data)


@dataclass(frozen=True, slots=True)
class Response:
    """A complete answer that is no error; ``where`` is for messages."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    where: str

    def json(self) -> dict[str, Any]:
        """The document; empty if there is none.

        Raises:
            StoreError: ``store.refused``: it is no JSON document.
        """
        try:
            document = json.loads(self.body) if self.body.strip() else {}
        except ValueError:
            document = None
        if not isinstance(document, dict):
            hint = "check the endpoint, and proxies on the way"
            message = "the answer is not one of Google Cloud Storage"
            raise StoreError("store.refused", message, where=self.where, hint=hint)
        return document


class GcsAccess:
    """Sends requests for one bucket. May be used by many threads.

    Args:
        bucket: Name of the bucket.
        store_url: For messages.
        access: Server and account.
    """

    def __init__(self, bucket: str, store_url: str, access: Access) -> None:
        self.bucket = bucket
        self.store_url = store_url
        self.access = access
        self._found: GcsClient | None = None

    @property
    def client(self) -> GcsClient:
        """The process's client; after a fork, that of the child."""
        found = self._found
        if found is None or found.pid != os.getpid():
            self._found = found = shared_client(self.access)
        return found

    def object_path(self, full_key: str, *, bucket: str = "") -> str:
        """The path of an object, or of the bucket's objects if the key is empty."""
        path = f"/storage/v1/b/{quote(bucket or self.bucket, safe='')}/o"
        return f"{path}/{quote(full_key, safe='')}" if full_key else path

    def send(self, request: Request, call: Call) -> Response:
        """Send a request, and receive the complete answer.

        Args:
            request: The request.
            call: For messages.

        Raises:
            LarderError: See `larder.store.gcs_errors`.
        """
        return self.run(lambda files: self.answer(files, request, call))

    def run(self, work: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Run a coroutine in the client's thread.

        Args:
            work: Makes it, given the file system of gcsfs.
        """
        client = self.client
        files = client.files(self.store_url)
        return client.thread.run(work(files))

    async def answer(self, files: Any, request: Request, call: Call) -> Response:
        """The same, in the client's thread only."""
        response = await self.begin(files, request, call)
        async with response:
            with transport_errors(call):
                body = await response.read()
        return Response(response.status, response.headers, body, call.where)

    async def begin(self, files: Any, request: Request, call: Call) -> aiohttp.ClientResponse:
        """Send a request, and receive the headers of the answer; the caller closes it.

        In the client's thread only.
        """
        import yarl

        query = files._get_params({k: v for k, v in request.query.items() if v is not None})
        own = request.path.startswith("/")
        url = f"{files._location.rstrip('/')}{request.path}" if own else request.path
        if query:
            url += ("&" if "?" in url else "?") + urlencode(query, quote_via=quote)
        headers = files._get_headers(dict(request.headers))
        session = await self.client.session()
        with transport_errors(call):
            response = await self._exchange(session, yarl.URL(url, encoded=True), headers, request)
        status = response.status
        if status // 100 == 2 or status in request.accept:
            return response
        async with response:
            with transport_errors(call):
                body = await response.read()
        raise gcs_error(GcsAnswer.of(status, body, response.headers.get("Retry-After", "")), call)

    async def _exchange(
        self, session: aiohttp.ClientSession, url: Any, headers: dict[str, str], request: Request
    ) -> aiohttp.ClientResponse:
        """Send the request; give up if the server takes none of it for too long.

        The silence of a server that has received everything is noticed by the session's timeout.
        """
        seconds = self.access.give_up_seconds
        clock = asyncio.get_running_loop().time
        async with asyncio.timeout(seconds) as limit:

            def moved() -> None:
                with suppress(RuntimeError):  # the server has answered before the end of the body
                    limit.reschedule(clock() + seconds)

            if request.data:
                headers["Content-Length"] = str(request.size_bytes)
            return await session.request(
                request.method,
                url,
                headers=headers,
                data=RepeatableBody(request.data, moved) if request.data else None,
                proxy=self.client.proxy,
                allow_redirects=False,
                # Whoever accepts a coding wants the bytes as they are stored.
                auto_decompress="Accept-Encoding" not in headers,
            )


class RepeatableBody:
    """A body in pieces. aiohttp iterates anew if the server has closed a kept connection.

    Args:
        data: The buffers.
        moved: Called before each piece.
    """

    def __init__(self, data: tuple[Buffer, ...], moved: Callable[[], None]) -> None:
        self._data = data
        self._moved = moved

    async def __aiter__(self) -> AsyncIterator[Buffer]:
        """The pieces, from the beginning."""
        for buffer in self._data:
            with memoryview(buffer).cast("B") as view:
                for start in range(0, len(view), _PIECE_BYTES):
                    self._moved()
                    yield view[start : start + _PIECE_BYTES]


@contextmanager
def transport_errors(call: Call) -> Iterator[None]:
    """Raise the errors of aiohttp as those of `larder.errors`."""
    import aiohttp

    try:
        yield
    except (aiohttp.ClientError, OSError) as error:  # TimeoutError is one
        raise no_answer(error, call) from error
