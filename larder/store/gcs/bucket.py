"""Requests to the JSON API of GCS for one bucket. None is repeated here.

https://cloud.google.com/storage/docs/json_api
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode

from larder.errors import LarderError, StoreError
from larder.store.access import Access
from larder.store.base import Buffer
from larder.store.gcs.client import GcsClient, shared_client
from larder.store.gcs.errors import broken, gcs_error
from larder.store.http import Answer
from larder.store.s3_errors import Call

__all__ = ["GcsBucket", "Response"]


@dataclass(frozen=True, slots=True)
class Response:
    """An answer that was received as a whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    call: Call

    def error(self) -> LarderError:
        """What it means, if it is an error."""
        wait = self.headers.get("retry-after", "")
        return gcs_error(self.status, self.body, wait, self.call)

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
            raise StoreError("store.refused", message, where=self.call.where, hint=hint)
        return document


class GcsBucket:
    """Sends requests for one bucket. May be used by many threads.

    Args:
        name: Name of the bucket.
        store_url: For messages.
        access: Server and account.
    """

    def __init__(self, name: str, store_url: str, access: Access) -> None:
        self.name = name
        self.store_url = store_url
        self.access = access
        self._client: GcsClient | None = None

    @property
    def client(self) -> GcsClient:
        """The process's client; after a fork, that of the child."""
        client = self._client
        if client is None or client.pid != os.getpid():
            self._client = client = shared_client(self.access, self.store_url)
        return client

    def path(self, full_key: str = "", *, bucket: str = "") -> str:
        """The path of an object, or of the bucket's objects if there is no key."""
        path = f"/storage/v1/b/{quote(bucket or self.name, safe='')}/o"
        return f"{path}/{quote(full_key, safe='')}" if full_key else path

    def send(
        self,
        call: Call,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Sequence[Buffer] = (),
        *,
        accept: Sequence[int] = (),
    ) -> Response:
        """Send a request, and receive the complete answer; see `begin`."""
        answer = self.begin(call, method, path, query, headers, body, accept=accept)
        return _received(answer, call)

    def begin(
        self,
        call: Call,
        method: str,
        path: str,
        query: Mapping[str, str | None] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Sequence[Buffer] = (),
        *,
        accept: Sequence[int] = (),
    ) -> Answer:
        """Send a request, and receive the headers of the answer; the caller closes it.

        Args:
            call: For messages.
            method: Such as ``GET``.
            path: The path on the server, possibly with parameters.
            query: Further parameters; those that are None are left out.
            headers: Headers.
            body: The body, in pieces.
            accept: The statuses that are no errors, in addition to 2xx.

        Raises:
            LarderError: See `larder.store.gcs.errors`.
        """
        client = self.client
        sent = {**client.headers(self.store_url), **(headers or {})}
        parameters = {name: text for name, text in (query or {}).items() if text is not None}
        if parameters := {**parameters, **client.parameters}:
            path += ("&" if "?" in path else "?") + urlencode(parameters, quote_via=quote)
        with broken(call):
            answer = client.http.request(method, client.http.path + path, sent, body)
        if answer.status // 100 == 2 or answer.status in accept:
            return answer
        raise _received(answer, call).error()


def _received(answer: Answer, call: Call) -> Response:
    with answer, broken(call):
        return Response(answer.status, answer.headers, answer.read(), call)
