"""The types of fields that name credentials, keys and accounts, and never contain one."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from larder.config.fields import RefusedError, Text
from larder.config.secrets import may_be_key

AWS_BLOCKS = ("aws-credentials", "secret")
"""The kinds of Prefect blocks that may contain the keys of an S3 store."""

GCP_BLOCKS = ("gcp-credentials", "secret")
"""The kinds of Prefect blocks that may contain the key of a service account."""

_BLOCK_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_ROLE = re.compile(r"arn:aws[a-z-]*:iam::([0-9]{12})?:role/[\w+=,.@/-]{1,512}", re.ASCII)
_AWS_KEY = re.compile(
    r"(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?"
    r"(key/|(?=[0-9a-f]{8}-|mrk-[0-9a-f]{32}\Z))"
    r"(mrk-[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:)?alias/[A-Za-z0-9/_-]{1,250}"
)
_KEY_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_GCP_KEY = re.compile(
    r"projects/[a-z0-9.:-]+/locations/[a-z0-9-]+/keyRings/[\w-]{1,63}/cryptoKeys/[\w-]{1,63}",
    re.ASCII,
)
_PROJECT = re.compile(r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]|[0-9]{6,20}")


def no_key(value: str) -> str:
    """A name as it is; ``config.secret`` if it may be an access key, a secret or a token."""
    if may_be_key(value):
        hint = "name the credentials, and keep them where the name is looked up"
        raise RefusedError("must not contain credentials", code="config.secret", hint=hint)
    return value


def _profile(value: str) -> str:
    if not value.isprintable() or "[" in value or "]" in value:
        raise RefusedError("not the name of an AWS profile", hint="see ~/.aws/config")
    return value


def _role(value: str) -> str:
    if value and not _ROLE.fullmatch(value):
        hint = "write arn:aws:iam::ACCOUNT:role/NAME"
        raise RefusedError("not the ARN of an IAM role", hint=hint)
    return value


def _block(value: str, kinds: tuple[str, ...]) -> str:
    kind, slash, name = value.partition("/")
    hint = f"write {' or '.join(f'{each}/NAME' for each in kinds)}"
    if value and (not slash or not _BLOCK_NAME.fullmatch(name)):
        raise RefusedError("not the KIND/NAME of a Prefect block", hint=hint)
    if value and kind not in kinds:
        raise RefusedError("a kind of Prefect block that is not supported here", hint=hint)
    return value


def _aws_block(value: str) -> str:
    return _block(value, AWS_BLOCKS)


def _gcp_block(value: str) -> str:
    return _block(value, GCP_BLOCKS)


def is_aws_key(value: str) -> bool:
    """Whether a key of KMS is named as in AWS; other servers have names of their own."""
    return _AWS_KEY.fullmatch(value) is not None


def _aws_key(value: str) -> str:
    if value and not is_aws_key(value) and not _KEY_NAME.fullmatch(value):
        hint = "write its ID, its ARN or alias/NAME"
        raise RefusedError("not the name of a KMS key", hint=hint)
    return value


def _gcp_key(value: str) -> str:
    if value and not _GCP_KEY.fullmatch(value):
        hint = "write projects/PROJECT/locations/LOCATION/keyRings/RING/cryptoKeys/KEY"
        raise RefusedError("not the name of a Cloud KMS key", hint=hint)
    return value


def _project(value: str) -> str:
    if value and not _PROJECT.fullmatch(value):
        raise RefusedError("not the ID or number of a Google Cloud project")
    return value


_Reference = Annotated[Text, AfterValidator(no_key)]

Profile = Annotated[_Reference, AfterValidator(_profile)]
"""Name of a profile in the AWS configuration."""

Role = Annotated[_Reference, AfterValidator(_role)]
"""ARN of an IAM role; a server other than AWS may have no account in it."""

AwsBlock = Annotated[_Reference, AfterValidator(_aws_block)]
"""KIND/NAME of the Prefect block with the credentials of an S3 store."""

GcpBlock = Annotated[_Reference, AfterValidator(_gcp_block)]
"""KIND/NAME of the Prefect block with the credentials of Google Cloud."""

AwsKey = Annotated[_Reference, AfterValidator(_aws_key)]
"""Name of a key of AWS KMS, or of the key manager of another S3 server."""

GcpKey = Annotated[_Reference, AfterValidator(_gcp_key)]
"""Name of a key of Cloud KMS."""

Project = Annotated[_Reference, AfterValidator(_project)]
"""ID or number of a Google Cloud project."""
