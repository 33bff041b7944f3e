"""A bucket in GCS, its account, and requests to the JSON API.

https://cloud.google.com/storage/docs/json_api

Requests for a public bucket have no credentials; neither have requests without TLS, which must not
send a token. Otherwise, the configured block has the key of a service account, or the application
default credentials are used: GOOGLE_APPLICATION_CREDENTIALS, then gcloud's, then the machine's.
https://cloud.google.com/docs/authentication/application-default-credentials
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from larder.bounds import ERROR_BYTES, parse_bounded
from larder.config.urls import Access
from larder.errors import ConfigError, LarderError, RetryableError, StoreError
from larder.packages import install_hint
from larder.store.base import Buffer
from larder.store.blocks import load
from larder.store.buckets import Bucket, RenewedKeys, SharedAccounts, connections, server_endpoint
from larder.store.calls import Call, connection_errors
from larder.store.gcs.answers import CREDENTIALS_HINT, gcs_error
from larder.store.http import Answer
from larder.store.retry import RetryPolicy, repeated

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"


class GcsSettings(NamedTuple):
    """URL of the server, credentials of google-auth, and the project that is billed, if any."""

    endpoint: str
    credentials: Any
    project: str


def import_gcsfs() -> ModuleType:
    """Import ``gcsfs.credentials``, or raise ``config.missing_package``."""
    try:
        return import_module("gcsfs.credentials")
    except ImportError as error:
        raise ConfigError(
            "config.missing_package",
            f"Google Cloud Storage needs {error.name or 'gcsfs'}, which is not installed",
            hint=install_hint("gcs"),
        ) from error


def find_settings(store_url: str, access: Access) -> GcsSettings:
    """Look up server, credentials and project.

    Raises:
        StoreError: ``store.denied``: no credentials were found.
        ConfigError: ``config.block`` or ``config.invalid_value``.
    """
    endpoint = server_endpoint("gs", access)
    credentials, project = _credentials(store_url, access, endpoint)
    project = access.project or project or os.environ.get("GOOGLE_CLOUD_PROJECT", "")
    if access.requester_pays and not project:
        raise ConfigError(
            "config.invalid_value",
            "the requester pays, but the project that pays is not known",
            where=store_url,
            hint="set project, or GOOGLE_CLOUD_PROJECT",
        )
    if access.project and hasattr(credentials, "with_quota_project"):
        credentials = credentials.with_quota_project(access.project)
    return GcsSettings(endpoint, credentials, project)


def _credentials(store_url: str, access: Access, endpoint: str) -> tuple[Any, str]:
    """Return the credentials and their project; (None, "") for requests without credentials."""
    if access.anonymous or endpoint.startswith("http://"):
        return None, ""
    if access.block:
        return _of_block(access.block)
    import google.auth
    from google.auth.exceptions import GoogleAuthError

    try:
        credentials, project = google.auth.default(scopes=[SCOPE])
    except (GoogleAuthError, OSError, ValueError) as error:
        message = "no Google Cloud credentials were found, or they are invalid"
        hint = f"{CREDENTIALS_HINT}; or set anonymous: true for a public bucket"
        raise StoreError("store.denied", message, where=store_url, hint=hint) from error
    return credentials, str(project or "")


def _of_block(block: str) -> tuple[Any, str]:
    """Load credentials from a block: the key of a service account, or the path of its file."""
    from google.auth.exceptions import GoogleAuthError
    from google.oauth2 import service_account

    kind: Any = service_account.Credentials
    content = load(block)
    key = content.get("service_account_info") or content
    path = content.get("service_account_file")
    try:
        if isinstance(key, str):
            key = json.loads(key)
        if path and key is content:
            credentials = kind.from_service_account_file(os.path.expanduser(path), scopes=[SCOPE])
        else:
            credentials = kind.from_service_account_info(key, scopes=[SCOPE])
    except (GoogleAuthError, OSError, ValueError, TypeError, AttributeError):
        # The message of the error may contain parts of the key.
        message = "the block has no valid key of a service account"
        raise ConfigError("config.block", message, where=f"block {block}") from None
    return credentials, str(content.get("project") or credentials.project_id or "")


T = TypeVar("T")

_DESCRIBING_THREADS = 32
_LOOK_AGAIN = timedelta(minutes=10)
_VARIABLES = ("GOOGLE_", "STORAGE_EMULATOR_HOST", "CLOUDSDK_", "NO_GCE_")


class GcsAccount:
    """Connections and credentials of one account at one server.

    The credentials are gcsfs's, but not the calls: these repeat requests on their own, drop the
    status and the headers of answers, keep listings, and need an event loop.
    """

    def __init__(self, access: Access, store_url: str) -> None:
        self._access = access
        settings = find_settings(store_url, access)
        self.tokens = _renewing(settings, store_url)
        universe = os.environ.get("GOOGLE_CLOUD_UNIVERSE_DOMAIN") or "googleapis.com"
        self.http = connections(settings.endpoint or f"https://storage.{universe}", access)
        self.headers: RenewedKeys[dict[str, str]] = RenewedKeys(self._ask)
        """The headers of every request, with a token that is valid for some minutes."""
        self.project = settings.project
        self.parameters = {"userProject": settings.project} if access.requester_pays else {}
        """Query parameters of every request: the project that pays."""
        self.describing = ThreadPoolExecutor(_DESCRIBING_THREADS, "larder-describe")
        """Threads that describe objects while their content is requested."""

    def _ask(self, store_url: str, refused: bool) -> tuple[dict[str, str], float]:
        from gcsfs.retry import HttpError, NonRetryableError
        from google.auth.exceptions import GoogleAuthError

        if refused:
            self.tokens = _renewing(find_settings(store_url, self._access), store_url)
        headers = {"Host": self.http.host}
        try:
            self.tokens.apply(headers)
        except (GoogleAuthError, HttpError, NonRetryableError) as error:
            raise _unrenewed(error, store_url) from error
        expiry = getattr(self.tokens.credentials, "expiry", None)
        now = datetime.now(timezone.utc)
        left = expiry.replace(tzinfo=timezone.utc) - now if expiry else _LOOK_AGAIN
        return headers, max(0.0, min(left, _LOOK_AGAIN).total_seconds())


def _renewing(settings: GcsSettings, store_url: str) -> Any:
    """Return the credentials of gcsfs, which renew tokens before they expire."""
    mtls: Any = import_module("google.auth.transport.mtls")
    if settings.credentials and mtls.should_use_client_cert():
        raise ConfigError(
            "config.invalid_value",
            "Google's libraries are told to use a client certificate, and Larder has none",
            where=store_url,
            hint="set GOOGLE_API_USE_CLIENT_CERTIFICATE=false, or use other credentials",
        )
    gcsfs: Any = import_gcsfs()
    return gcsfs.GoogleCredentials(settings.project, "read_write", settings.credentials or "anon")


def _unrenewed(error: Exception, store_url: str) -> LarderError:
    from google.auth.exceptions import TransportError

    if isinstance(error, TransportError) or getattr(error.__cause__, "retryable", False):
        message = "the credentials cannot be renewed now"
        return RetryableError("store.unavailable", message, where=store_url)
    message = "the credentials are refused"
    return StoreError("store.denied", message, where=store_url, hint=CREDENTIALS_HINT)


shared_account = SharedAccounts(GcsAccount, _VARIABLES).get


@dataclass(frozen=True, slots=True)
class Request:
    """One request. Parameters that are None are omitted; a status in ``accept`` is no error."""

    method: str
    path: str
    query: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Sequence[Buffer] = ()
    accept: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes
    call: Call

    @classmethod
    def of(cls, answer: Answer, call: Call) -> Response:
        with answer, connection_errors(call):
            is_error = answer.status >= 300
            body = answer.beginning(ERROR_BYTES) if is_error else answer.read()
            return cls(answer.status, answer.headers, body, call)

    def error(self) -> LarderError:
        retry_after = self.headers.get("retry-after", "")
        return gcs_error(self.status, self.body, retry_after, self.call)

    def json(self) -> dict[str, Any]:
        """Parse the document; return an empty dict for an empty body."""
        try:
            document = parse_bounded(self.body) if self.body.strip() else {}
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            hint = "check the endpoint, and proxies on the way"
            message = "the answer is not one of Google Cloud Storage"
            raise StoreError("store.refused", message, where=self.call.where, hint=hint)
        return document


class GcsBucket(Bucket[GcsAccount]):
    def __init__(self, name: str, store_url: str, access: Access, policy: RetryPolicy) -> None:
        super().__init__(name, store_url, access, shared_account)
        self._policy = policy

    def path(self, full_key: str = "", *, bucket: str = "") -> str:
        """Return the path of an object; without a key, of the bucket's objects."""
        path = f"/storage/v1/b/{quote(bucket or self.name, safe='')}/o"
        return f"{path}/{quote(full_key, safe='')}" if full_key else path

    def begin(self, request: Request, call: Call) -> Answer:
        """Send a request, and receive the headers of the answer; the caller closes the answer."""
        account, target = self.account, self._target(request)

        def send(keys: dict[str, str]) -> Answer:
            headers = {**keys, **request.headers}
            with connection_errors(call):
                answer = account.http.request(request.method, target, headers, request.body)
            if answer.status // 100 == 2 or answer.status in request.accept:
                return answer
            raise Response.of(answer, call).error()

        return account.headers.use(send, self.store_url)

    def get_each(self, requests: Iterable[Request], ahead: int) -> Generator[Answer]:
        """See `larder.store.buckets.BucketStore._answers`."""
        account = self.account
        keys = account.headers.use(lambda keys: keys, self.store_url)
        targets = ((self._target(each), {**keys, **each.headers}) for each in requests)
        return account.http.get_each(targets, ahead)

    def _target(self, request: Request) -> str:
        account, path = self.account, request.path
        query = {**request.query, **account.parameters}
        if given := {name: text for name, text in query.items() if text is not None}:
            path += ("&" if "?" in path else "?") + urlencode(given, quote_via=quote)
        return account.http.path + path

    def send(self, request: Request, call: Call) -> Response:
        return Response.of(self.begin(request, call), call)

    def again(self, call: Callable[[], T]) -> T:
        """Make a call that `RetryStore` cannot repeat, and repeat it here."""
        return repeated(call, self._policy)


@dataclass(frozen=True, slots=True)
class GcsObject:
    bucket: GcsBucket
    call: Call

    @property
    def path(self) -> str:
        return self.bucket.path(self.call.full_key)

    def send(self, method: str, query: Mapping[str, str | None] | None = None) -> Response:
        return self.bucket.send(Request(method, self.path, query or {}), self.call)
