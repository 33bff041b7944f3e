"""Connections and credentials of a Google Cloud account.

Of gcsfs, Larder uses the credentials, the address of the server and the parameters of requests. Its
calls are not used: they repeat requests on their own, drop the status and the headers of answers,
and keep listings. They would run in an event loop, of which there is none here.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from larder.config.access import Access
from larder.errors import ConfigError, LarderError, RetryableError, StoreError
from larder.store.accounts import SharedAccounts, connections
from larder.store.gcs.credentials import find_settings, import_gcsfs
from larder.store.gcs.errors import CREDENTIALS_HINT

_DESCRIBING_THREADS = 32


class GcsAccount:
    """Connections and credentials of one account at one server.

    Raises:
        LarderError: See `larder.store.gcs.credentials.find_settings`.
    """

    def __init__(self, access: Access, store_url: str) -> None:
        core = import_gcsfs()
        settings = find_settings(store_url, access)
        self.files = core.GCSFileSystem(
            project=settings.project,
            token=settings.credentials or "anon",
            requester_pays=settings.project if access.requester_pays else False,
            endpoint_url=settings.endpoint or None,
            asynchronous=True,  # otherwise it starts an event loop in a thread
            skip_instance_cache=True,
            use_listings_cache=False,
        )
        if settings.credentials and self.files._use_client_cert:
            raise ConfigError(
                "config.invalid_value",
                "Google's libraries are told to use a client certificate, and Larder has none",
                where=store_url,
                hint="set GOOGLE_API_USE_CLIENT_CERTIFICATE=false, or use other credentials",
            )
        self.http = connections(self.files._location, access)
        self.parameters: Mapping[str, str] = self.files._get_params({})
        """Those of every request: who pays."""
        self.describing = ThreadPoolExecutor(_DESCRIBING_THREADS, "larder-describe")
        """Where objects are described while their content is requested."""

    def headers(self, store_url: str) -> dict[str, str]:
        """The headers of every request, with a token that is valid for some minutes.

        Raises:
            LarderError: ``store.denied``, ``store.unavailable``: the credentials cannot be renewed.
        """
        from gcsfs.retry import HttpError, NonRetryableError
        from google.auth.exceptions import GoogleAuthError

        try:
            headers: dict[str, str] = self.files._get_headers({"Host": self.http.host})
        except (GoogleAuthError, HttpError, NonRetryableError) as error:
            raise _unrenewed(error, store_url) from error
        return headers


def _unrenewed(error: Exception, store_url: str) -> LarderError:
    from google.auth.exceptions import TransportError

    if isinstance(error, TransportError) or getattr(error.__cause__, "retryable", False):
        message = "the credentials cannot be renewed now"
        return RetryableError("store.unavailable", message, where=store_url)
    message = "the credentials are refused"
    return StoreError("store.denied", message, where=store_url, hint=CREDENTIALS_HINT)


_VARIABLES = ("GOOGLE_", "STORAGE_EMULATOR_HOST", "CLOUDSDK_", "NO_GCE_")
shared_account = SharedAccounts(GcsAccount, _VARIABLES).get
