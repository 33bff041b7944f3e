"""Where data lives: a bucket of S3, a bucket of Google Cloud Storage, or a directory.

Which of them it is follows from the scheme of ``url``, and with it which other keys there may be.
Keys of another provider are accepted where they say nothing (null, empty or false), so that a file
with variables fits a bucket as well as a directory.
"""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from larder.config.location import Access
from larder.config.models.fields import (
    AnyGlobs,
    Endpoint,
    Flag,
    Globs,
    Model,
    RefusedError,
    Region,
    Text,
    Url,
)
from larder.config.text.replacements import UNREAD, FilledText
from larder.config.text.yaml import scalar
from larder.config.urls import may_be_key, parse_url, url_fault

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


RowFormat = Literal["jsonl", "csv", "text", "parquet"]

FORMATS: dict[str, RowFormat] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "text",
    ".parquet": "parquet",
}
"""The format of a table by the end of its key."""

_RESERVED = ("cls", "json")


class Rows(Model):
    """Tables whose rows are samples."""

    format: Literal["auto", "jsonl", "csv", "text", "parquet"] = Field(
        "auto",
        description="jsonl: JSON Lines; csv: with a header; text: lines; parquet; auto: by the "
        "extension",
    )
    files: Globs | None = Field(
        None, description="keys of the tables: one glob or a list; null: by their extension"
    )
    key: Text | None = Field(
        None,
        min_length=1,
        description="column or field that names the samples of a table; null: the row's number",
    )
    delimiter: Text | None = Field(
        None, description="what separates the fields of CSV; null: a comma, or a tab for .tsv"
    )
    columns: dict[Text, Text | None] = Field(
        {},
        description="of Parquet: columns that become parts of their own, with their extension, "
        "such as {image.bytes: jpg}; null leaves a column out",
    )

    @field_validator("columns")
    @classmethod
    def _extensions(cls, value: dict[str, str | None]) -> dict[str, str | None]:
        given = [ext for ext in value.values() if ext is not None]
        for ext in given:
            if not all(ext.split(".")) or "/" in ext or ext in _RESERVED:
                hint = "write it without a dot before it, as in jpg; json has the other columns"
                raise RefusedError("columns: not an extension", hint=hint, detail=repr(ext))
            if given.count(ext) > 1:
                raise RefusedError("columns: two columns with one extension", detail=repr(ext))
        return value

    @field_validator("delimiter")
    @classmethod
    def _separates(cls, value: str | None) -> str | None:
        if value is not None and (len(value) != 1 or value in '\n\r"'):
            raise RefusedError("delimiter: not one character that can separate fields")
        return value

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.files is not None and self.format == "auto":
            raise RefusedError("rows.files needs rows.format: it names the format of all of them")
        for name, given, formats in (
            ("key", self.key, ("auto", "jsonl", "csv", "parquet")),
            ("delimiter", self.delimiter, ("auto", "csv")),
            ("columns", self.columns, ("auto", "parquet")),
        ):
            if given and self.format not in formats:
                raise RefusedError(f"rows.{name}: does not apply to rows.format: {self.format}")
        return self


_ACCESS = {field.name for field in fields(Access)}
_FLAGS = ("anonymous", "requester_pays")
_NOUNS = {"s3": "a bucket of S3", "gs": "a bucket of Google Cloud Storage", "file": "a directory"}


class Location(Model):
    """A bucket prefix or a directory, and how to reach it. Never contains credentials."""

    url: Url = Field(description="s3://bucket/prefix, gs://bucket/prefix, file:///dir or a path")

    @property
    def provider(self) -> str:
        """``s3``, ``gs``, ``file`` or ``memory``."""
        return parse_url(self.url).scheme or "file"

    @property
    def access(self) -> Access:
        """How the store is reached: by the keys that are fields of an `Access` too."""
        shared = _ACCESS & type(self).model_fields.keys()
        return Access(**{name: getattr(self, name) for name in shared})

    @model_validator(mode="before")
    @classmethod
    def _without_others(cls, value: Any) -> Any:
        """Leaves out keys of other providers that say nothing; with an unknown URL, all of them."""
        if not isinstance(value, dict):
            return value
        unknown = not _is_url(value.get("url"))
        others = _KEYS - cls.model_fields.keys()
        if value.get("url") is UNREAD:
            others = others | {"inventory"}
        return {
            key: each
            for key, each in value.items()
            if key not in others or not (unknown or _says_nothing(each))
        }

    @field_validator("*", mode="after")
    @classmethod
    def _empty_is_none(cls, value: Any) -> Any:
        return None if value == "" else value


def _says_nothing(value: Any) -> bool:
    if isinstance(value, FilledText):
        value = scalar(value.strip())
    return value is None or value is False or value == ""


def _is_url(url: Any) -> bool:
    """Whether a URL says which provider it is of: no variable is missing, and nothing else."""
    return isinstance(url, str) and url is not UNREAD and "${" not in url and url_fault(url) is None


_Region = Annotated[Region, AfterValidator(no_key)]
_REGION = "region of the bucket, such as us-west-2"
_ANONYMOUS = "whether the bucket is public, so that requests are not signed"
_REQUESTER_PAYS = "whether to pay for requests to a bucket whose owner does not"


class S3Location(Location):
    """A bucket of S3 or of a compatible server."""

    region: _Region | None = Field(None, description=_REGION)
    endpoint: Endpoint | None = Field(
        None, description="URL of an S3-compatible server other than AWS: http://127.0.0.1:9000"
    )
    profile: Profile | None = Field(None, description="profile in the AWS credentials file")
    role: Role | None = Field(
        None, description="ARN of an IAM role to assume: arn:aws:iam::123456789012:role/reader"
    )
    block: AwsBlock | None = Field(
        None, description="Prefect block with the credentials: aws-credentials/NAME or secret/NAME"
    )
    anonymous: Flag = Field(False, description=_ANONYMOUS)
    requester_pays: Flag = Field(False, description=_REQUESTER_PAYS)
    kms_key: AwsKey | None = Field(
        None, description="ID, ARN or alias of the KMS key that encrypts what is written"
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _check_anonymous(self, ("profile", "role", "block", "requester_pays", "kms_key"))
        if self.block and self.profile:
            raise RefusedError("block: credentials come from a profile or from a block, not both")
        if self.kms_key and not self.endpoint and not is_aws_key(self.kms_key):
            hint = "write its ID, its ARN or alias/NAME"
            raise RefusedError("kms_key: not the name of a key of AWS KMS", hint=hint)
        return self


class GcsLocation(Location):
    """A bucket of Google Cloud Storage."""

    region: _Region | None = Field(None, description="location of the bucket: us-central1, or US")
    endpoint: Endpoint | None = Field(
        None, description="URL of a server that imitates Google Cloud Storage"
    )
    block: GcpBlock | None = Field(
        None, description="Prefect block with the credentials: gcp-credentials/NAME or secret/NAME"
    )
    anonymous: Flag = Field(False, description=_ANONYMOUS)
    requester_pays: Flag = Field(False, description=_REQUESTER_PAYS)
    kms_key: GcpKey | None = Field(
        None, description="Cloud KMS key that encrypts what is written: projects/.../cryptoKeys/KEY"
    )
    project: Project | None = Field(
        None, description="Google Cloud project that is billed, where the requester pays"
    )

    @model_validator(mode="after")
    def _agree(self) -> Self:
        _check_anonymous(self, ("block", "requester_pays", "kms_key", "project"))
        return self


class LocalLocation(Location):
    """A directory."""


def _check_anonymous(location: S3Location | GcsLocation, others: tuple[str, ...]) -> None:
    other = next((name for name in others if getattr(location, name)), "")
    if location.anonymous and other:
        raise RefusedError(f"anonymous: requests that are not signed cannot have {other}")


class Columns(Model):
    """The columns of a table of objects."""

    key: Text | None = Field(None, min_length=1, description="column of the keys; null: key")
    size: Text | None = Field(
        None, min_length=1, description="column of the sizes in bytes; null: size or size_bytes"
    )
    etag: Text | None = Field(
        None, min_length=1, description="column of the etags; null: etag, if there is one"
    )
    modified: Text | None = Field(
        None,
        min_length=1,
        description="column of the modification times; null: modified or last_modified, if there "
        "is one",
    )


class Report(Model):
    """A list of the objects in the source, instead of listing the bucket."""

    format: Literal["auto", "s3-inventory", "parquet", "csv"] = Field(
        "auto", description="s3-inventory: a report of S3 Inventory; parquet or csv: a table"
    )
    url: Url = Field(
        description="manifest.json of a report, the prefix of all reports, or the table: in the "
        "source's provider, or a path"
    )
    columns: Columns = Field(Columns(), description="columns of a table, by their names")


class Selection(Model):
    """Which objects of a source count."""

    include: Globs = Field(
        ("**",), description="keys to include: one glob or a list; * within a segment, ** across"
    )
    exclude: AnyGlobs = Field((), description="keys to exclude from those: one glob or a list")
    inventory: Report | None = Field(
        None, description="report that lists the objects; null: the source is listed"
    )

    archives: Literal["keep", "expand"] = Field(
        "keep",
        description="expand: the members of tar archives are objects, also those of archives in "
        "archives; keep: an archive is an object like any other",
    )
    rows: Rows | None = Field(
        None, description="tables whose rows are samples; null: a table is an object like any other"
    )

    @property
    def expands(self) -> bool:
        """Whether some objects are replaced with what is in them."""
        return self.archives == "expand" or self.rows is not None

    @model_validator(mode="after")
    def _near(self) -> Self:
        if self.inventory is not None:
            ours, theirs = (
                parse_url(url) for url in (getattr(self, "url", ""), self.inventory.url)
            )
            if not theirs.is_directory and theirs.scheme != ours.scheme:
                hint = "credentials are those of the source: copy it there, or to a directory"
                raise RefusedError("inventory.url: not in the source's provider", hint=hint)
        return self


class S3Source(Selection, S3Location):
    """Objects in a bucket of S3."""


class GcsSource(Selection, GcsLocation):
    """Objects in a bucket of Google Cloud Storage."""


class LocalSource(Selection, LocalLocation):
    """Files in a directory."""


_KEYS = S3Location.model_fields.keys() | GcsLocation.model_fields.keys()

_S3, _GCS, _LOCAL = "(s3)", "(gs)", "(file)"
"""The providers in the locations of pydantic's errors: cannot be keys of a file."""


def _provider(value: Any) -> str:
    """The provider of a location; where the URL is invalid, any will do to say so."""
    if isinstance(value, Location):
        url: Any = value.url
    else:
        url = value.get("url") if isinstance(value, dict) else None
    scheme = parse_url(url).scheme if isinstance(url, str) else "s3"
    return {"s3": _S3, "gs": _GCS}.get(scheme, _LOCAL)


AnyLocation = Annotated[
    Annotated[S3Location, Tag(_S3)]
    | Annotated[GcsLocation, Tag(_GCS)]
    | Annotated[LocalLocation, Tag(_LOCAL)],
    Discriminator(_provider),
]
"""A location, by the scheme of its URL."""

AnySource = Annotated[
    Annotated[S3Source, Tag(_S3)]
    | Annotated[GcsSource, Tag(_GCS)]
    | Annotated[LocalSource, Tag(_LOCAL)],
    Discriminator(_provider),
]
"""A source, by the scheme of its URL."""


def misplaced(key: str, url: Any) -> str:
    """Why a location with this URL cannot have a key that others have; empty if none has it."""
    if key not in _KEYS or not isinstance(url, str):
        return ""
    scheme = parse_url(url).scheme
    noun = _NOUNS.get(scheme, _NOUNS["file"])
    return f"does not apply to {noun}" if key in _FLAGS else f"{noun} has no {key}"
