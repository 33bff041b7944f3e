"""Credentials of an IAM role, assumed with other credentials and renewed before they expire."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from larder.errors import RetryableError, StoreError
from larder.store.s3_errors import CREDENTIALS_HINT

__all__ = ["assume_role", "credential_errors"]

_SESSION_NAME = "larder"
_CONNECT_SECONDS = 10
_SERVER_ERROR = 500
_BUSY = frozenset({"Throttling", "ThrottlingException", "RequestLimitExceeded", "SlowDown"})


def assume_role(
    session: Any, role: str, *, endpoint: str | None, region: str, give_up_seconds: float
) -> Any:
    """A session with the credentials of a role. Sends no request before they are needed.

    Args:
        session: boto3's session with the credentials that may assume it.
        role: ARN of the role.
        endpoint: URL of the server that is asked, unless ``AWS_ENDPOINT_URL_STS`` names one; by
            default AWS.
        region: The region whose STS is asked.
        give_up_seconds: When a request that gets no answer fails.
    """
    import boto3
    import botocore.session
    from botocore.config import Config
    from botocore.credentials import AssumeRoleCredentialFetcher, DeferredRefreshableCredentials

    config = Config(
        connect_timeout=min(_CONNECT_SECONDS, give_up_seconds / 2),
        read_timeout=give_up_seconds / 2,
        retries={"total_max_attempts": 1, "mode": "standard"},
    )
    asked = None if os.environ.get("AWS_ENDPOINT_URL_STS") else endpoint

    def client(service: str, **keys: Any) -> Any:
        return session._session.create_client(
            service, region_name=region, endpoint_url=asked, config=config, **keys
        )

    fetcher = AssumeRoleCredentialFetcher(
        client_creator=client,
        source_credentials=session.get_credentials(),
        role_arn=role,
        extra_args={"RoleSessionName": _SESSION_NAME},
    )
    assumed = botocore.session.Session()
    assumed._credentials = DeferredRefreshableCredentials(
        method="assume-role", refresh_using=fetcher.fetch_credentials
    )
    return boto3.Session(botocore_session=assumed, region_name=region)


@contextmanager
def credential_errors(store_url: str, what: str) -> Iterator[None]:
    """Raise botocore's errors, while it looks for credentials, as those of a store.

    Args:
        store_url: For messages.
        what: Whose credentials: ``the role ARN``.

    Raises:
        StoreError: ``store.denied``: there are none.
        RetryableError: ``store.unavailable``: whoever gives them does not answer, or is busy.
    """
    from botocore import exceptions as of_botocore
    from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

    try:
        yield
    except ClientError as error:
        said = error.response.get("Error", {})
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        message = f"no credentials of {what}: {said.get('Code', status)}"
        if status >= _SERVER_ERROR or said.get("Code") in _BUSY:
            raise RetryableError("store.unavailable", message, where=store_url) from error
        detail = " ".join(str(said.get("Message") or "").split())
        message = f"{message}: {detail}" if detail else message
        hint = "check that these credentials may assume it, and that it trusts them"
        raise StoreError("store.denied", message, where=store_url, hint=hint) from error
    except (of_botocore.ConnectionError, HTTPClientError) as error:  # no connection, or no answer
        message = f"no credentials of {what}: the server that gives them does not answer"
        raise RetryableError("store.unavailable", message, where=store_url) from error
    except (BotoCoreError, RuntimeError) as error:
        message = f"no credentials of {what}: {' '.join(str(error).split())}"
        hint = CREDENTIALS_HINT
        raise StoreError("store.denied", message, where=store_url, hint=hint) from error
