"""Server, credentials and project of a GCS bucket, from Google's standard chain.

There are none for a public bucket, and for a server without TLS: a token must not be sent there.
Else they are the key of a service account in the block that is named, or the application default
credentials: GOOGLE_APPLICATION_CREDENTIALS, then gcloud's, then those of the machine.
https://cloud.google.com/docs/authentication/application-default-credentials
"""

from __future__ import annotations

import json
import os
from importlib import import_module
from types import ModuleType
from typing import Any, NamedTuple

from larder.config.access import Access
from larder.errors import ConfigError, StoreError
from larder.packages import install_hint
from larder.store.accounts import load, server_endpoint
from larder.store.gcs.answers import CREDENTIALS_HINT

SCOPE = "https://www.googleapis.com/auth/devstorage.read_write"
"""What the tokens are for."""


class GcsSettings(NamedTuple):
    """URL of the server, credentials of google-auth, and the project that is billed, if any."""

    endpoint: str
    credentials: Any
    project: str


def import_gcsfs() -> ModuleType:
    """The module ``gcsfs.core``, or an error that says how to install it.

    Raises:
        ConfigError: ``config.missing_package``.
    """
    try:
        return import_module("gcsfs.core")
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
        ConfigError: ``config.missing_package``; ``config.block``: the block cannot be used;
            ``config.invalid_value``: the environment has an invalid endpoint, or a requester pays
            but there is no project.
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
    """The credentials and their project; (None, "") to send none."""
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
    """The credentials in a block: the key of a service account, or the path of a file with it."""
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
