"""Credentials of a machine or a role, without boto3: obstore's own chain.

They come from the first of these that applies::

    a profile that is named, here or by AWS_PROFILE         botocore alone
    AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN            STS
    a default profile in the AWS configuration files        botocore alone
    AWS_CONTAINER_CREDENTIALS_RELATIVE_URI, or _FULL_URI    the agent of ECS or EKS
    anything else                                           the metadata of the instance (IMDSv2)

obstore uses STS only over https, and requires a token file with a full URI; other cases are left to
botocore. The metadata service is not used if AWS_EC2_METADATA_DISABLED is true, or for a server on
this machine, unless AWS_EC2_METADATA_SERVICE_ENDPOINT is set.

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
"""The AWS configuration files: the variable with the path of each, and the default path."""

_METADATA = "http://169.254.169.254"
_CONTAINER = "http://169.254.170.2"
# Settings of a default profile that do not concern credentials or addresses.
_HARMLESS = {"region", "output", "s3", "cli_pager", "max_attempts", "retry_mode"}
_BUSY = 429
_ANSWER_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Chain:
    """The source of the credentials.

    Attributes:
        giver: Its name, for messages.
        asked: The beginning of the URL that obstore requests, as its errors show it.
        region: The region of the default profile, or empty.
        options: Options for obstore, in addition to the environment variables that it reads itself.
    """

    giver: str
    asked: str
    region: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    def refusal(self, text: str, call: Call) -> LarderError | None:
        """What an error of obstore means, if it comes from requesting credentials.

        Args:
            text: The message of obstore.
            call: For messages.

        Returns:
            None if the error comes from the store itself.
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
        """Request a token from the metadata service, as obstore will, but with a short timeout.

        In a container, the request may get out but not the answer in (if the instance's hop limit
        is one), and obstore waits for it as long as for the bytes of an object.

        Args:
            store_url: For messages.

        Raises:
            StoreError: ``store.denied``: there is no answer.
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
    """Decide where the credentials come from.

    Args:
        profile: See `larder.store.open_store`.
        region: The region, from an argument or the environment; may be empty.
        store_url: For messages.
        local_server: Whether the store is a server on this machine.

    Raises:
        ConfigError: ``config.missing_package``: botocore is required.
        StoreError: ``store.denied``: there are no credentials.
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
    """Whether the metadata service of an instance may have the credentials for a store.

    A server on this machine has nothing to do with the instance's role, and outside a cloud the
    request would wait for an address that does not answer.

    Args:
        local_server: Whether the store is a server on this machine.
    """
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return False
    return not local_server or bool(_metadata_endpoint())


def no_credentials(store_url: str) -> StoreError:
    """The error that there are no credentials."""
    return StoreError(
        "store.denied",
        "no AWS credentials in the environment, the profile or the role of this machine",
        where=store_url,
        hint=CREDENTIALS_HINT,
    )


def without_boto3(what_needs: str) -> ConfigError:
    """The error that boto3 is not installed.

    Args:
        what_needs: Subject of the message; ends in "need" or "needs".
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
    # obstore hides this address, which contains the token.
    return Chain("STS", "REDACTED", region, {"aws_endpoint_url_sts": url})


def _check_token(variable: str, store_url: str) -> None:
    path = os.environ[variable]
    if not os.access(path, os.R_OK):
        message = f"the token file that {variable} names cannot be read: {path}"
        raise StoreError("store.denied", message, where=store_url, hint=CREDENTIALS_HINT)


def _metadata_endpoint() -> str:
    """The configured address of the metadata service; empty: the usual address."""
    told = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT")
    return told or os.environ.get("AWS_METADATA_ENDPOINT", "")


def _default_profile() -> Mapping[str, str]:
    """The settings of the default profile in the AWS configuration files."""
    found: dict[str, str] = {}
    for variable, usual in CONFIG_FILES:
        parser = configparser.RawConfigParser(strict=False, default_section="")
        path = Path(os.environ.get(variable) or usual).expanduser()
        try:
            parser.read_string(path.read_text("utf-8", "replace"))
        except FileNotFoundError:
            continue
        except (OSError, configparser.Error):
            found[str(path)] = "cannot be read"  # botocore reports what is wrong with it
            continue
        for section in ("default", "profile default"):
            if parser.has_section(section):
                found.update(parser.items(section))
    return found
