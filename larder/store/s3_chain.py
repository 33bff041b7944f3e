"""Credentials of a machine or a role, without boto3: obstore's own chain.

Who gives them, the first that applies::

    a profile that is named, here or by AWS_PROFILE         botocore alone
    AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN            STS
    a default profile in the AWS configuration files        botocore alone
    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI    the agent of ECS or EKS
    anything else                                           the metadata of the instance (IMDSv2)

obstore asks STS by https alone, and wants a token file with a full URI; what it cannot is left to
botocore. The metadata is not asked where AWS_EC2_METADATA_DISABLED is true, nor for a server of
this machine, unless AWS_EC2_METADATA_SERVICE_ENDPOINT names where it is.

The variables: https://docs.aws.amazon.com/sdkref/latest/guide/standardized-credentials.html
"""

from __future__ import annotations

import configparser
import http.client
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from larder.errors import ConfigError, LarderError, RetryableError, StoreError
from larder.store.s3_errors import CREDENTIALS_HINT, Call, answer_of_text

__all__ = [
    "CONFIG_FILES",
    "Chain",
    "asks_metadata",
    "find_chain",
    "no_credentials",
    "without_boto3",
]

CONFIG_FILES = (
    ("AWS_CONFIG_FILE", "~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
)
"""The AWS configuration files: the variable that names each, and where it is otherwise."""

_METADATA = "http://169.254.169.254"
_CONTAINER = "http://169.254.170.2"
# What a default profile may say without being about credentials or addresses.
_HARMLESS = {"region", "output", "s3", "cli_pager", "max_attempts", "retry_mode"}
_BUSY = 429
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Chain:
    """Who gives the credentials.

    Attributes:
        giver: For messages.
        asked: How the URL that obstore asks begins, as its errors show it.
        region: What the default profile says; empty: nothing.
        options: obstore's, beside the variables of the environment that it reads itself.
    """

    giver: str
    asked: str
    region: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, text: str, call: Call) -> LarderError | None:
        """What an error of obstore's means, if it is one of asking for credentials.

        Args:
            text: obstore's.
            call: For messages.

        Returns:
            None: the store itself was asked.
        """
        _, _, request = text.partition("Error performing ")
        if not request.partition(" ")[2].startswith(self.asked):
            return None
        answer = answer_of_text(text)
        said = f"answers {answer.status}" if answer else "does not answer"
        message = f"no AWS credentials: {self.giver} {said}"
        if answer and (answer.status >= 500 or answer.status == _BUSY):
            return RetryableError("store.unavailable", message, where=call.store_url)
        return StoreError("store.denied", message, where=call.store_url, hint=CREDENTIALS_HINT)

    def check(self, store_url: str) -> None:
        """Ask the metadata for a token, as obstore will, with less patience.

        In a container, an instance may let the question out and not the answer in (its hop limit is
        one then), and obstore waits for that as long as for the bytes of an object.

        Args:
            store_url: For messages.

        Raises:
            StoreError: ``store.denied``: nothing answers.
        """
        url = urlsplit(self.options.get("metadata_endpoint", ""))
        if not url.hostname:
            return
        try:
            connection = http.client.HTTPConnection(url.hostname, url.port, timeout=_ANSWER_SECONDS)
            with closing(connection):
                lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
                connection.request("PUT", f"{url.path}/latest/api/token", headers=lifetime)
                connection.getresponse().read()
        except (OSError, ValueError, http.client.HTTPException) as error:
            message = f"no AWS credentials: {self.giver} does not answer"
            hint = CREDENTIALS_HINT
            raise StoreError("store.denied", message, where=store_url, hint=hint) from error


def find_chain(profile: str | None, region: str, store_url: str, *, local_server: bool) -> Chain:
    """Decide who gives the credentials.

    Args:
        profile: As for `larder.store.open_store`.
        region: What is known of it: an argument, or the environment; may be empty.
        store_url: For messages.
        local_server: Whether the store is a server of this machine.

    Raises:
        ConfigError: ``config.missing_package``: only botocore knows how.
        StoreError: ``store.denied``: nobody gives any.
    """
    if os.environ.get("AWS_ACCESS_KEY_ID") and not os.environ.get("AWS_SECRET_ACCESS_KEY"):
        raise no_credentials(store_url)
    if name := profile or os.environ.get("AWS_PROFILE"):
        raise without_boto3(f"the AWS profile {name!r} needs")
    default = _default_profile()
    region = region or default.get("region", "")
    if os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE") and os.environ.get("AWS_ROLE_ARN"):
        return _web_identity(region, store_url)
    if default.keys() - _HARMLESS:
        raise without_boto3("the default profile of the AWS configuration needs")
    if os.environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
        return Chain("the container's agent", _CONTAINER, region)
    if url := os.environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI"):
        if not os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            raise without_boto3("AWS_CONTAINER_CREDENTIALS_FULL_URI without a token file needs")
        _check_token("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", store_url)
        return Chain("the container's agent", url, region)
    if not asks_metadata(local_server):
        raise no_credentials(store_url)
    url = (_metadata_endpoint() or _METADATA).rstrip("/")
    options = {"metadata_endpoint": url}
    return Chain("the instance's metadata service", f"{url}/latest/", region, options)


def asks_metadata(local_server: bool) -> bool:
    """Whether an instance's metadata may hold the credentials for a store.

    A server of this machine has nothing to do with the instance's role, and outside a cloud the
    look-up waits for an address that nobody answers.

    Args:
        local_server: Whether the store is a server of this machine.
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    return not local_server or bool(_metadata_endpoint())


def no_credentials(store_url: str) -> StoreError:
    """The error that nobody gives credentials."""
    return StoreError(
        "store.denied",
        "no AWS credentials in the environment, the profile or the role of this machine",
        where=store_url,
        hint=CREDENTIALS_HINT,
    )


def without_boto3(what_needs: str) -> ConfigError:
    """The error that boto3 is not installed.

    Args:
        what_needs: Ends in "need" or "needs".
    """
    return ConfigError(
        "config.missing_package",
        f"{what_needs} boto3, which is not installed",
        hint="pip install 'larder-data[prepare]'",
    )


def _web_identity(region: str, store_url: str) -> Chain:
    where = region or "us-east-1"
    suffix = ".cn" if where.startswith("cn-") else ""
    named = os.environ.get("AWS_ENDPOINT_URL_STS")
    url = named or f"https://sts.{where}.amazonaws.com{suffix}"
    if not url.lower().startswith("https:"):
        raise without_boto3("AWS_ENDPOINT_URL_STS without https needs")
    _check_token("AWS_WEB_IDENTITY_TOKEN_FILE", store_url)
    # obstore hides this address, which holds the token.
    return Chain("STS", "REDACTED", region, {"aws_endpoint_url_sts": url})


def _check_token(variable: str, store_url: str) -> None:
    path = os.environ[variable]
    if not os.access(path, os.R_OK):
        message = f"the token file that {variable} names cannot be read: {path}"
        raise StoreError("store.denied", message, where=store_url, hint=CREDENTIALS_HINT)


def _metadata_endpoint() -> str:
    """Where the metadata is, as botocore or obstore is told; empty: where it always is."""
    told = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    return told or os.environ.get("AWS_METADATA_ENDPOINT", "")


def _default_profile() -> Mapping[str, str]:
    """What the AWS configuration files say for the default profile."""
    found: dict[str, str] = {}
    for variable, usual in CONFIG_FILES:
        parser = configparser.RawConfigParser(strict=False, default_section="")
        path = Path(os.environ.get(variable) or usual).expanduser()
        try:
            parser.read_string(path.read_text("utf-8", "replace"))
        except FileNotFoundError:
            continue
        except (OSError, configparser.Error):
            found[str(path)] = "cannot be read"  # botocore says what is wrong with it
            continue
        for section in ("default", "profile default"):
            if parser.has_section(section):
                found.update(parser.items(section))
    return found
