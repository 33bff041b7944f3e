"""Requests to the JSON API of GCS for one bucket and its objects.

https://cloud.google.com/storage/docs/json_api
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from larder.config.access import Access
from larder.errors import LarderError, StoreError
from larder.store.accounts import Bucket
from larder.store.base import Buffer
from larder.store.calls import Call, connection_errors
from larder.store.gcs.account import GcsAccount, shared_account
from larder.store.gcs.errors import gcs_error
from larder.store.http import Answer
from larder.store.retry import RetryPolicy, repeated

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """One request; ``path`` may have parameters already.

    Attributes:
        query: Further parameters; those that are None are left out.
        body: The body, in pieces.
        accept: The statuses that are no errors, in addition to 2xx.
    """

    method: str
    path: str
    query: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[Buffer] = ()
    accept: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Response:
    """An answer that was received as a whole."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    call: Call

    @classmethod
    def of(cls, answer: Answer, call: Call) -> Response:
        """Receive the rest of an answer."""
        with answer, connection_errors(call):
            return cls(answer.status, answer.headers, answer.read(), call)

    def error(self) -> LarderError:
        """What it means, if it is an error."""
        retry_after = self.headers.get("retry-after", "")
        return gcs_error(self.status, self.body, retry_after, self.call)

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


class GcsBucket(Bucket[GcsAccount]):
    """Sends requests for one bucket. May be used by many threads."""

    def __init__(self, name: str, store_url: str, access: Access, policy: RetryPolicy) -> None:
        super().__init__(name, store_url, access, shared_account)
        self._policy = policy

    def path(self, full_key: str = "", *, bucket: str = "") -> str:
        """The path of an object, or of the bucket's objects if there is no key."""
        path = f"/storage/v1/b/{quote(bucket or self.name, safe='')}/o"
        return f"{path}/{quote(full_key, safe='')}" if full_key else path

    def begin(self, request: Request, call: Call) -> Answer:
        """Send a request, and receive the headers of the answer; the caller closes it.

        Raises:
            LarderError: See `larder.store.gcs.errors`.
        """
        account, path = self.account, request.path
        headers = {**account.headers(self.store_url), **request.headers}
        query = {**request.query, **account.parameters}
        if given := {name: text for name, text in query.items() if text is not None}:
            path += ("&" if "?" in path else "?") + urlencode(given, quote_via=quote)
        with connection_errors(call):
            answer = account.http.request(
                request.method, account.http.path + path, headers, request.body
            )
        if answer.status // 100 == 2 or answer.status in request.accept:
            return answer
        raise Response.of(answer, call).error()

    def send(self, request: Request, call: Call) -> Response:
        """Send a request, and receive the complete answer; see `begin`."""
        return Response.of(self.begin(request, call), call)

    def again(self, call: Callable[[], T]) -> T:
        """Make a call that `RetryStore` cannot repeat, and repeat it here."""
        result: T = repeated(call, self._policy)
        return result


@dataclass(frozen=True, slots=True)
class GcsObject:
    """An object: its bucket, and the call that it is for."""

    bucket: GcsBucket
    call: Call

    @property
    def path(self) -> str:
        """Its path on the server."""
        return self.bucket.path(self.call.full_key)

    def send(self, method: str, query: Mapping[str, str | None] | None = None) -> Response:
        """Send a request for it, and receive the complete answer."""
        return self.bucket.send(Request(method, self.path, query or {}), self.call)
